/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is, by its first bytes. */
#include "base/file_kind.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* Checks what these bytes are, and that fewer of them are never read behind their end. */
static void is(const char *bytes, size_t count, const char *what)
{
	const struct pd_file_kind *kind = pd_file_kind(bytes, count);

	is_str(kind ? kind->what : "not known", what, "%s", what);
	for (size_t fewer = 0; fewer < count; fewer++) {
		char *part = memcpy(malloc(fewer + 1), bytes, fewer);

		pd_file_kind(part, fewer);
		free(part);
	}
}

#define IS(bytes, what) is(bytes, sizeof(bytes) - 1, what)
#define ZIP(length, name) "PK\3\4....................." "." length "\0\0\0" name

int main(void)
{
	char text[PD_FILE_KIND_TEXT];

	IS(ZIP("\x10", "archive/data.pkl"), "a PyTorch archive (.pt)");
	IS(ZIP("\x0c", "model/data/0"), "a PyTorch archive (.pt)");
	IS(ZIP("\x17", "m/data/weights/weight_0"), "a program exported from PyTorch (.pt2)");
	IS(ZIP("\x09", "image.npy"), "a zip archive of NumPy arrays (.npz)");
	IS(ZIP("\x05", "a.txt"), "a zip archive");
	IS("PK\3\4", "a zip archive");
	IS("\x80\x02\x8a\x0al\xfc\x9c", "a Python pickle, as old files of PyTorch are");
	IS("\x1f\x8b\x08\x08", "a gzip file");
	IS("\xef\xbb\xbf{", "text with a byte order mark (BOM)");
	IS("\xff\xfe{\0", "text in UTF-16");
	IS("\xfe\xff\0{", "text in UTF-16");
	IS("{\0\"\0", "JSON in UTF-16");
	IS("\0{\0\"", "JSON in UTF-16");
	IS("\x08\x07\x12\x07pytorch", "an ONNX model");
	IS("\x40\0\0\0\0\0\0\0{\"a\"", "a safetensors file");
	IS("\x93NUMPY\1\0", "a NumPy array (.npy)");
	IS("\0\0\x08\3", "images in IDX format");
	IS(" \n {", "a JSON document");
	IS("[1]", "a JSON document");
	IS("<svg", "XML or HTML");
	IS("Call me Ishmael", "not known");
	IS("\x10\x27\0\0\x11\x27\0\0", "not known");
	IS("", "not known");
	is_str(pd_file_kind_say(pd_file_kind("\x1f\x8b\x08", 3), text), ", found a gzip file; gunzip unpacks it",
	       "what is said of one");
	is_str(pd_file_kind_say(pd_file_kind("<", 1), text), ", found XML or HTML", "without advice");
	ok(!pd_file_kind_of("/") && !pd_file_kind_of("absent"), "folders and absent files are of no kind");
	return done_testing();
}
