/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a checkpoint of one stage, its document and its safetensors file.  The input is four
 * bytes with the length of the document (little-endian), the document, and the file; the file is
 * also read as parameters to begin with.  Checksums are put right first, so that what lies behind
 * them is reached; as they came they are tried, too.
 */
#include "base/checksum.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "doors/tensors/initial.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[128], document[200], stage[200];
static struct pd_model *model;

static const char model_text[] =
	"{\"format\": \"pd-model\", \"version\": 1, \"name\": \"small\", \"inputs\": ["
	"{\"name\": \"image\", \"dtype\": \"f32\", \"shape\": [1, 2, 3]},"
	"{\"name\": \"label\", \"dtype\": \"i32\", \"shape\": []}], \"layers\": ["
	"{\"name\": \"conv1\", \"kind\": \"conv2d\", \"inputs\": [\"image\"], \"out_channels\": 6,"
	" \"kernel\": 1, \"bias\": false},"
	"{\"name\": \"bn1\", \"kind\": \"batchnorm2d\", \"inputs\": [\"conv1\"]},"
	"{\"name\": \"flat\", \"kind\": \"flatten\", \"inputs\": [\"bn1\"]},"
	"{\"name\": \"fc\", \"kind\": \"linear\", \"inputs\": [\"flat\"], \"out_features\": 36},"
	"{\"name\": \"fc2\", \"kind\": \"linear\", \"inputs\": [\"fc\"], \"out_features\": 36,"
	" \"shares\": \"fc\"},"
	"{\"name\": \"loss\", \"kind\": \"softmax_cross_entropy\", \"inputs\": [\"fc2\", \"label\"]}]}";

static void clean(void)
{
	unlink(document);
	unlink(stage);
	*strrchr(document, '/') = 0;
	rmdir(document);
	rmdir(directory);
}

static void set_up(void)
{
	json_t *json = json_loads(model_text, 0, NULL);
	struct pd_error err;
	char folder[160];

	snprintf(directory, sizeof(directory), "/dev/shm/pd-fuzz.XXXXXX");
	if (!mkdtemp(directory))
		abort();
	snprintf(folder, sizeof(folder), "%s/step-%012d", directory, STEP);
	mkdir(folder, 0700);
	snprintf(document, sizeof(document), "%s/checkpoint.json", folder);
	snprintf(stage, sizeof(stage), "%s/stage-0.safetensors", folder);
	atexit(clean);
	model = pd_model_parse("model", json, &err);
	json_decref(json);
	if (!model)
		pd_bug("%s", err.text);
}

static void put(const char *path, const void *bytes, size_t count)
{
	FILE *out = fopen(path, "w");

	if (!out || fwrite(bytes, 1, count, out) != count || fclose(out) != 0)
		abort();
}

/* The digits behind a key, where the text has them. */
static char *digits(char *text, const char *key)
{
	char *at = NULL;

	for (char *next = text; (next = strstr(next, key)); at = next)
		next += strlen(key);
	return at && strnlen(at, PD_CHECKSUM_DIGITS) == PD_CHECKSUM_DIGITS ? at : NULL;
}

static void put_right(char *text, size_t bytes, const uint8_t *file, size_t count)
{
	char sum[PD_CHECKSUM_DIGITS + 1], *at = digits(text, "\"header_checksum\": \"");
	uint64_t header = 0;

	if (count >= sizeof(header))
		memcpy(&header, file, sizeof(header));
	if (at && header <= count - sizeof(header) && count >= sizeof(header))
		memcpy(at, pd_checksum_text(pd_checksum(0, file, sizeof(header) + header), sum),
		       PD_CHECKSUM_DIGITS);
	at = digits(text, "\"checksum\": \"");
	if (!at)
		return;
	memcpy(at, "0000000000000000", PD_CHECKSUM_DIGITS);
	memcpy(at, pd_checksum_text(pd_checksum(0, text, bytes), sum), PD_CHECKSUM_DIGITS);
}

/* One sentence, or all that can be done with a checkpoint. */
static void look(void)
{
	struct pd_error err = { 0 };
	struct pd_checkpoint *ck = pd_checkpoint_open(directory, STEP, &err);
	float out[6 * 6];

	if (!ck && (!err.text[0] || strchr(err.text, '\n')))
		abort();
	if (!ck)
		return;
	if (pd_checkpoint_verify(ck, &err) == 0) {
		pd_checkpoint_read(ck, "conv1.weight", -1, 6, out, &err);
		pd_checkpoint_read(ck, "conv1.weight", STEP - 1, 6, out, &err);
		pd_checkpoint_stage_of(ck, "conv1");
	}
	pd_checkpoint_close(ck);
}

static void look_initial(void)
{
	struct pd_error err = { 0 };
	struct pd_initial *initial = pd_initial_open(stage, model, "f,*.bias", &err);
	float out[36 * 36];

	if (!initial && (!err.text[0] || strchr(err.text, '\n')))
		abort();
	if (initial)
		pd_initial_read(initial, "fc.weight", 36 * 36, out, &err);
	pd_initial_close(initial);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t bytes;
	char *text;

	if (!model)
		set_up();
	if (size < sizeof(bytes))
		return 0;
	memcpy(&bytes, data, sizeof(bytes));
	data += sizeof(bytes);
	size -= sizeof(bytes);
	if (bytes > size)
		bytes = (uint32_t)size;
	text = pd_zalloc(bytes + 1);
	memcpy(text, data, bytes);
	put(stage, data + bytes, size - bytes);
	put(document, text, bytes);
	look();
	put_right(text, bytes, data + bytes, size - bytes);
	put(document, text, bytes);
	look();
	look_initial();
	free(text);
	return 0;
}
