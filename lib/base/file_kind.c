/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_kind.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES 8
#define FORMAT_BYTES 4096
#define CONVERT "safetensors.torch.save_file(torch.load(FILE), NEW) in Python writes its parameters for " \
	"pd-run --init"

/* These begin with so many bytes; of several the first counts. */
static const struct {
	int count;
	unsigned char bytes[MOST_BYTES];
	struct pd_file_kind kind;
} beginnings[] = {
	{ 3, { 0x1f, 0x8b, 8 }, { "a gzip file", "gunzip unpacks it", false, true } },
	{ 3, "BZh", { "a bzip2 file", "bunzip2 unpacks it", true, false } },
	{ 6, { 0xfd, '7', 'z', 'X', 'Z', 0 }, { "an xz file", "unxz unpacks it", false, true } },
	{ 4, { 0x28, 0xb5, 0x2f, 0xfd }, { "a Zstandard file", "unzstd unpacks it", false, true } },
	{ 6, "\x93NUMPY", { "a NumPy array (.npy)", "pd-run --data reads it as DIR/train/NAME.npy", false,
			    true } },
	{ 8, { 0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n' }, { "an HDF5 file", NULL, false, true } },
	{ 4, "GGUF", { "a GGUF file", NULL, true, false } },
	{ 4, { 0, 0, 8, 1 }, { "labels in IDX format", "pd-run --data reads its folder", false, false } },
	{ 4, { 0, 0, 8, 3 }, { "images in IDX format", "pd-run --data reads its folder", false, false } },
	{ 4, { 0xff, 0xfe, 0, 0 }, { "text in UTF-32", "iconv -f UTF-32 -t UTF-8 converts it", false, false } },
	{ 2, { 0xff, 0xfe }, { "text in UTF-16", "iconv -f UTF-16 -t UTF-8 converts it", false, false } },
	{ 2, { 0xfe, 0xff }, { "text in UTF-16", "iconv -f UTF-16 -t UTF-8 converts it", false, false } },
	{ 2, { '{', 0 }, { "JSON in UTF-16", "iconv -f UTF-16LE -t UTF-8 converts it", false, false } },
	{ 2, { 0, '{' }, { "JSON in UTF-16", "iconv -f UTF-16BE -t UTF-8 converts it", false, false } },
	{ 3, { 0xef, 0xbb, 0xbf }, { "text with a byte order mark (BOM)", "\"tail -c +4\" leaves the mark out",
				     true, false } },
	{ 4, { 0x7f, 'E', 'L', 'F' }, { "a program", NULL, false, true } },
	{ 8, { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' }, { "a PNG image", NULL, false, true } },
	{ 3, { 0xff, 0xd8, 0xff }, { "a JPEG image", NULL, false, true } },
	{ 5, "%PDF-", { "a PDF document", NULL, true, false } },
};

static const struct pd_file_kind
	pickle = { "a Python pickle, as old files of PyTorch are", CONVERT, false, false, PD_FILE_PYTORCH },
	torch = { "a PyTorch archive (.pt)", CONVERT, false, true, PD_FILE_PYTORCH },
	exported = { "a program exported from PyTorch (.pt2)", NULL, false, true, PD_FILE_PYTORCH },
	arrays = { "a zip archive of NumPy arrays (.npz)", "pd-run --data reads it as FILE.npz", false, true },
	zip = { "a zip archive", "unzip unpacks it", false, true },
	onnx = { "an ONNX model", "pd-model makes a model document of it", false, false, PD_FILE_ONNX },
	safetensors = { "a safetensors file", "pd-run --init reads it", false, false },
	markup = { "XML or HTML", NULL, true, false },
	json = { "a JSON document", NULL, true, false };

static bool ends(const char *name, size_t length, const char *end)
{
	size_t count = strlen(end);

	return length >= count && memcmp(name + length - count, end, count) == 0;
}

/* Of a program exported from PyTorch the weights come first. */
static bool has(const char *name, size_t length, const char *part)
{
	for (size_t count = strlen(part); length >= count; length--, name++)
		if (memcmp(name, part, count) == 0)
			return true;
	return false;
}

/* A zip archive begins with an entry; its name, whose length is at 26, is at 30. */
static const struct pd_file_kind *kind_of_zip(const unsigned char *bytes, size_t count)
{
	size_t length = count > 30 ? bytes[26] + 256u * bytes[27] : 0;
	const char *name = (const char *)bytes + 30;

	if (length < 4 || 30 + length > count)
		return &zip;
	if (ends(name, length, "/data.pkl") || ends(name, length, "/data/0"))
		return &torch;
	if (has(name, length, "/data/weights/") || ends(name, length, "/models/model.json"))
		return &exported;
	return ends(name, length, ".npy") ? &arrays : &zip;
}

/* The length of a header, in eight bytes, and the header, which is JSON. */
static bool is_safetensors(const unsigned char *bytes, size_t count)
{
	uint64_t length = 0;

	for (int i = 7; i >= 0 && count > 8; i--)
		length = length << 8 | bytes[i];
	return count > 8 && bytes[8] == '{' && length >= 2 && length < UINT64_C(1) << 32;
}

/* A protocol buffer: field 1 is the version, a small number, before a field with a length. */
static bool is_onnx(const unsigned char *bytes, size_t count)
{
	return count > 3 && bytes[0] == 8 && bytes[1] > 0 && bytes[1] < 32 &&
	       (bytes[2] == 0x12 || bytes[2] == 0x1a || bytes[2] == 0x22 || bytes[2] == 0x3a);
}

const struct pd_file_kind *pd_file_kind(const void *from, size_t count)
{
	const unsigned char *bytes = from;
	size_t at = 0;

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++)
		if (count >= (size_t)beginnings[i].count &&
		    memcmp(bytes, beginnings[i].bytes, (size_t)beginnings[i].count) == 0)
			return &beginnings[i].kind;
	if (count >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
		return kind_of_zip(bytes, count);
	if (count >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5)
		return &pickle;
	if (is_safetensors(bytes, count))
		return &safetensors;
	if (is_onnx(bytes, count))
		return &onnx;
	while (at < count && isspace(bytes[at]))
		at++;
	if (at < count && bytes[at] == '<')
		return &markup;
	return at < count && (bytes[at] == '{' || bytes[at] == '[') ? &json : NULL;
}

const struct pd_file_kind *pd_file_kind_of(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char bytes[PD_FILE_KIND_BYTES];
	ssize_t count = -1;
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		count = read(fd, bytes, sizeof(bytes));
	if (fd >= 0)
		close(fd);
	return count > 0 ? pd_file_kind(bytes, (size_t)count) : NULL;
}

bool pd_file_says_format(const char *file, const char *format)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[FORMAT_BYTES + 1], word[64];
	ssize_t count = -1;
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		count = read(fd, text, FORMAT_BYTES);
	if (fd >= 0)
		close(fd);
	text[count > 0 ? count : 0] = '\0';
	snprintf(word, sizeof(word), "\"%s\"", format);
	return strstr(text, word);
}

const char *pd_file_kind_say(const struct pd_file_kind *kind, char text[PD_FILE_KIND_TEXT])
{
	snprintf(text, PD_FILE_KIND_TEXT, ", found %s%s%s", kind->what, kind->advice ? "; " : "",
		 kind->advice ? kind->advice : "");
	return text;
}
