/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/sizes.h"

#include "estimate/split.h"

#include <stdio.h>
#include <string.h>

#define MOST_TENSOR 8                   /* beyond a server layers are not shared out */

int pd_estimate_sizes(const struct pd_estimate *how, const struct pd_model *model, int64_t least,
		      int64_t most, struct pd_profile *profiles[PD_ESTIMATE_SIZES], struct pd_error *err)
{
	struct pd_estimate sized = *how;
	int count = 0;

	while (least > 1 && least > most)
		least /= 2;
	for (int i = 0; i < PD_ESTIMATE_SIZES && (i == 0 || least << i <= most); i++) {
		sized.batch_size = least << i;
		if (pd_model_check_batch(model, sized.batch_size, err) == 0)
			profiles[count] = pd_estimate_profile(&sized, model, err);
		else
			profiles[count] = NULL;
		if (!profiles[count++]) {
			for (count--; count > 0; count--)
				pd_profile_free(profiles[count - 1]);
			return -1;
		}
	}
	return count;
}

bool pd_estimate_tensor(const struct pd_model *model, int64_t most, char text[PD_TENSOR_TEXT])
{
	struct pd_error ignored;
	struct pd_split split;
	int length = snprintf(text, PD_TENSOR_TEXT, "1");
	bool shares = false;

	for (int devices = 2; devices <= most && devices <= MOST_TENSOR; devices *= 2)
		if (pd_split_find(model, devices, true, &split, &ignored) == 0) {
			pd_split_release(&split);
			length += snprintf(text + length, (size_t)(PD_TENSOR_TEXT - length), ",%d",
					   devices);
			shares = true;
		}
	if (shares)
		snprintf(text + length, (size_t)(PD_TENSOR_TEXT - length), ",sequence");
	return shares;
}
