/* SPDX-License-Identifier: Apache-2.0 */
/* Networks that classify images.  Layers are named as in torchvision, where that has the network. */
#include "network/builder.h"

#include "base/mem.h"

#include <inttypes.h>

/* The inputs; returns the image's name. */
static const char *images(struct pd_network *n, const struct pd_network_size *size)
{
	pd_network_input(n, "image", "f32", 3, size->channels, size->size, size->size);
	pd_network_input(n, "label", "i32", 0);
	return "image";
}

static int classes(struct pd_network *n, const char *logits)
{
	pd_network_layer(n, "softmax_cross_entropy", "loss",
			 pd_network_name(n, "%s label", logits), NULL);
	return 0;
}

/* A window, what is not said as the kind has it. */
struct window {
	int64_t channels;               /* of a convolution */
	int64_t kernel, stride, padding, groups;
	bool unbiased;
};

static const char *windows(struct pd_network *n, const char *kind, const char *name, const char *in,
			   struct window w)
{
	json_t *more = json_object();

	if (w.channels)
		pd_json_set(more, "out_channels", json_integer(w.channels));
	pd_json_set(more, "kernel", json_integer(w.kernel));
	if (w.stride)
		pd_json_set(more, "stride", json_integer(w.stride));
	if (w.padding)
		pd_json_set(more, "padding", json_integer(w.padding));
	if (w.groups > 1)
		pd_json_set(more, "groups", json_integer(w.groups));
	if (w.unbiased)
		pd_json_set(more, "bias", json_false());
	return pd_network_layer(n, kind, name, in, "o", more);
}

static const char *conv(struct pd_network *n, const char *name, const char *in, struct window w)
{
	return windows(n, "conv2d", name, in, w);
}

static const char *pool(struct pd_network *n, const char *name, const char *in, int64_t kernel,
			int64_t stride, int64_t padding)
{
	return windows(n, "maxpool2d", name, in, (struct window){ .kernel = kernel, .stride = stride,
								  .padding = padding });
}

static const char *relu(struct pd_network *n, const char *name, const char *in)
{
	return pd_network_layer(n, "relu", name, in, NULL);
}

static const char *flatten(struct pd_network *n, const char *in)
{
	return pd_network_layer(n, "flatten", "flatten", in, NULL);
}

static const char *mean_of(struct pd_network *n, const char *in, int64_t places)
{
	return pd_network_layer(n, "adaptive_avgpool2d", "avgpool", in, "{s:I}", "output_size",
				(json_int_t)places);
}

/* ---- small ones ---- */

static int build_mlp(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	const char *at = flatten(n, images(n, size));

	(void)err;
	for (int64_t l = 1; l < size->layers; l++) {
		at = pd_network_linear(n, pd_network_name(n, "fc%" PRId64, l), at, size->hidden);
		at = relu(n, pd_network_name(n, "relu%" PRId64, l), at);
	}
	return classes(n, pd_network_linear(n, pd_network_name(n, "fc%" PRId64, size->layers), at,
					    size->classes));
}

/* Each block halves the image. */
static void follow_blocks(struct pd_network_sizes *sizes)
{
	int64_t least = INT64_C(1) << (sizes->size.layers < 30 ? sizes->size.layers : 30);

	if (sizes->given.size == PD_NETWORK_UNSAID && sizes->size.size < least)
		sizes->size.size = least;
}

/* Two convolutions and a pool in each block, twice as many channels as in the block before. */
static int build_cnn(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	const char *at = images(n, size);
	int64_t channels = size->width;

	(void)err;
	for (int64_t block = 1; block <= size->layers; block++, channels *= 2) {
		for (int i = 1; i <= 2; i++) {
			at = conv(n, pd_network_name(n, "conv%" PRId64 "_%d", block, i), at,
				  (struct window){ channels, 3, .padding = 1 });
			at = relu(n, pd_network_name(n, "relu%" PRId64 "_%d", block, i), at);
		}
		at = pool(n, pd_network_name(n, "pool%" PRId64, block), at, 2, 0, 0);
	}
	at = pd_network_linear(n, "fc1", flatten(n, at), size->hidden);
	return classes(n, pd_network_linear(n, "fc2", relu(n, "relu_fc1", at), size->classes));
}

/* LeCun et al. 1998, with all channels of the second convolution connected. */
static int build_lenet(struct pd_network *n, const struct pd_network_size *size,
		       struct pd_error *err)
{
	static const struct window windows_of[] = { { 6, 5, .padding = 2 }, { 16, 5 } };
	static const int64_t features[] = { 120, 84 };
	const char *at = images(n, size);

	(void)err;
	for (int i = 0; i < 2; i++) {
		at = conv(n, pd_network_name(n, "conv%d", i + 1), at, windows_of[i]);
		at = pd_network_layer(n, "tanh", pd_network_name(n, "tanh%d", i + 1), at, NULL);
		at = windows(n, "avgpool2d", pd_network_name(n, "pool%d", i + 1), at,
			     (struct window){ .kernel = 2 });
	}
	at = flatten(n, at);
	for (int i = 0; i < 2; i++) {
		at = pd_network_linear(n, pd_network_name(n, "fc%d", i + 1), at, features[i]);
		at = pd_network_layer(n, "tanh", pd_network_name(n, "tanh%d", i + 3), at, NULL);
	}
	return classes(n, pd_network_linear(n, "fc3", at, size->classes));
}

/* ---- AlexNet and VGG ---- */

/* Krizhevsky 2014, "One weird trick", as torchvision has it. */
static int build_alexnet(struct pd_network *n, const struct pd_network_size *size,
			 struct pd_error *err)
{
	static const struct window windows_of[] = {
		{ 64, 11, 4, 2 }, { 192, 5, .padding = 2 }, { 384, 3, .padding = 1 },
		{ 256, 3, .padding = 1 }, { 256, 3, .padding = 1 },
	};
	const char *at = images(n, size);

	(void)err;
	for (int i = 1; i <= 5; i++) {
		at = conv(n, pd_network_name(n, "conv%d", i), at, windows_of[i - 1]);
		at = relu(n, pd_network_name(n, "relu%d", i), at);
		if (i != 3 && i != 4)
			at = pool(n, pd_network_name(n, "pool%d", i), at, 3, 2, 0);
	}
	at = flatten(n, mean_of(n, at, 6));
	for (int i = 6; i <= 7; i++) {
		at = pd_network_dropout(n, pd_network_name(n, "dropout%d", i), at, size->dropout);
		at = pd_network_linear(n, pd_network_name(n, "fc%d", i), at, size->hidden);
		at = relu(n, pd_network_name(n, "relu%d", i), at);
	}
	return classes(n, pd_network_linear(n, "fc8", at, size->classes));
}

#define VGG_BLOCKS 5

/* Simonyan and Zisserman 2015: configurations A, B, D, E. */
static int build_vgg(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	static const struct {
		int layers, convolutions[VGG_BLOCKS];
	} depths[] = {
		{ 11, { 1, 1, 2, 2, 2 } }, { 13, { 2, 2, 2, 2, 2 } }, { 16, { 2, 2, 3, 3, 3 } },
		{ 19, { 2, 2, 4, 4, 4 } },
	};
	const char *at = images(n, size);
	size_t d = 0;

	while (d < PD_COUNT(depths) && depths[d].layers != size->layers)
		d++;
	if (d == PD_COUNT(depths))
		return pd_error_input(err, "--layers=%" PRId64 ": vgg has 11, 13, 16 or 19",
				      size->layers);
	for (int block = 1; block <= VGG_BLOCKS; block++) {
		int64_t channels = block < 4 ? size->width << (block - 1) : size->width * 8;

		for (int i = 1; i <= depths[d].convolutions[block - 1]; i++) {
			at = conv(n, pd_network_name(n, "conv%d_%d", block, i), at,
				  (struct window){ channels, 3, .padding = 1 });
			at = relu(n, pd_network_name(n, "relu%d_%d", block, i), at);
		}
		at = pool(n, pd_network_name(n, "pool%d", block), at, 2, 0, 0);
	}
	at = flatten(n, mean_of(n, at, 7));
	for (int i = 6; i <= 7; i++) {
		at = pd_network_linear(n, pd_network_name(n, "fc%d", i), at, size->hidden);
		at = relu(n, pd_network_name(n, "relu%d", i), at);
		at = pd_network_dropout(n, pd_network_name(n, "dropout%d", i), at, size->dropout);
	}
	return classes(n, pd_network_linear(n, "fc8", at, size->classes));
}

/* ---- residual networks ---- */

#define RESNET_PARTS 4

static const struct depth {
	int layers;
	bool bottleneck;
	int blocks[RESNET_PARTS];
} resnet_depths[] = {
	{ 18, false, { 2, 2, 2, 2 } }, { 34, false, { 3, 4, 6, 3 } }, { 50, true, { 3, 4, 6, 3 } },
	{ 101, true, { 3, 4, 23, 3 } }, { 152, true, { 3, 8, 36, 3 } },
};

struct resnet {
	struct pd_network *network;
	bool bottleneck;
	int64_t groups, width;          /* of a group in the first part; ungrouped: all 64 channels */
};

/* A convolution and its batch normalisation, without a relu. */
static const char *normalised(struct pd_network *n, const char *conv_name, const char *bn_name,
			      const char *in, struct window w)
{
	w.unbiased = true;
	return pd_network_layer(n, "batchnorm2d", bn_name, conv(n, conv_name, in, w), NULL);
}

/* The convolutions of a block before the sum; stride: of the 3x3 window that comes first. */
static const char *branch(const struct resnet *r, const char *block, const char *in, int64_t planes,
			  int64_t stride)
{
	int64_t inner = r->bottleneck ? planes * r->width / 64 * r->groups : planes;
	const struct window wide[] = {
		{ inner, 1 }, { inner, 3, stride, 1, r->groups }, { planes * 4, 1 },
	}, plain[] = { { planes, 3, stride, 1 }, { planes, 3, 1, 1 } };
	const struct window *list = r->bottleneck ? wide : plain;
	int count = r->bottleneck ? 3 : 2;
	struct pd_network *n = r->network;

	for (int i = 0; i < count; i++) {
		in = normalised(n, pd_network_name(n, "%s.conv%d", block, i + 1),
				pd_network_name(n, "%s.bn%d", block, i + 1), in, list[i]);
		if (i + 1 < count)
			in = relu(n, pd_network_name(n, "%s.relu%d", block, i + 1), in);
	}
	return in;
}

static const char *residual(const struct resnet *r, const char *block, const char *in,
			    int64_t planes, int64_t stride, bool project)
{
	struct pd_network *n = r->network;
	const char *sum = branch(r, block, in, planes, stride);

	if (project)
		in = normalised(n, pd_network_name(n, "%s.downsample.0", block),
				pd_network_name(n, "%s.downsample.1", block), in,
				(struct window){ r->bottleneck ? planes * 4 : planes, 1, stride });
	sum = pd_network_layer(n, "add", pd_network_name(n, "%s.add", block),
			       pd_network_name(n, "%s %s", sum, in), NULL);
	return relu(n, pd_network_name(n, "%s.relu", block), sum);
}

static int build_residual(struct resnet *r, const struct pd_network_size *size,
			  const struct depth *depth)
{
	struct pd_network *n = r->network;
	const char *at = normalised(n, "conv1", "bn1", images(n, size),
				    (struct window){ 64, 7, 2, 3 });

	r->bottleneck = depth->bottleneck;
	at = pool(n, "maxpool", relu(n, "relu1", at), 3, 2, 1);
	for (int part = 0; part < RESNET_PARTS; part++)
		for (int b = 0; b < depth->blocks[part]; b++)
			at = residual(r, pd_network_name(n, "layer%d.%d", part + 1, b), at,
				      INT64_C(64) << part, b == 0 && part > 0 ? 2 : 1,
				      b == 0 && (part > 0 || r->bottleneck));
	at = flatten(n, mean_of(n, at, 1));
	return classes(n, pd_network_linear(n, "fc", at, size->classes));
}

static const struct depth *find_depth(int64_t layers)
{
	for (size_t d = 0; d < PD_COUNT(resnet_depths); d++)
		if (resnet_depths[d].layers == layers)
			return &resnet_depths[d];
	return NULL;
}

/* He et al. 2016; the stride is that of the 3x3 window, as in torchvision. */
static int build_resnet(struct pd_network *n, const struct pd_network_size *size,
			struct pd_error *err)
{
	const struct depth *depth = find_depth(size->layers);
	struct resnet r = { n, .groups = 1, .width = 64 };

	if (!depth)
		return pd_error_input(err, "--layers=%" PRId64 ": resnet has 18, 34, 50, 101 or 152",
				      size->layers);
	return build_residual(&r, size, depth);
}

/* Xie et al. 2017. */
static int build_resnext(struct pd_network *n, const struct pd_network_size *size,
			 struct pd_error *err)
{
	const struct depth *depth = find_depth(size->layers);
	struct resnet r = { n, .groups = size->groups, .width = size->width };

	if (!depth || !depth->bottleneck)
		return pd_error_input(err, "--layers=%" PRId64 ": resnext has 50, 101 or 152",
				      size->layers);
	return build_residual(&r, size, depth);
}

#define IMAGENET "channels=3 size=224 classes=1000"
#define MNIST "channels=1 size=28 classes=10"

const struct pd_family pd_family_mlp = {
	"mlp", "fully connected layers", (const struct pd_preset[]){
		{ "mlp", "layers=4 hidden=512 " MNIST }, { NULL } }, build_mlp
};
const struct pd_family pd_family_cnn = {
	"cnn", "a small convolutional network", (const struct pd_preset[]){
		{ "fashion-cnn", "layers=2 width=32 hidden=256 " MNIST }, { NULL } }, build_cnn, follow_blocks
};
const struct pd_family pd_family_lenet = {
	"lenet", "LeNet-5", (const struct pd_preset[]){
		{ "lenet5", MNIST }, { NULL } }, build_lenet
};
const struct pd_family pd_family_alexnet = {
	"alexnet", "AlexNet", (const struct pd_preset[]){
		{ "alexnet", "hidden=4096 dropout=0.5 " IMAGENET }, { NULL } }, build_alexnet
};
const struct pd_family pd_family_vgg = {
	"vgg", "VGG", (const struct pd_preset[]){
		{ "vgg16", "layers=16 width=64 hidden=4096 dropout=0.5 " IMAGENET },
		{ "vgg11", "layers=11" }, { "vgg13", "layers=13" }, { "vgg19", "layers=19" },
		{ NULL } }, build_vgg
};
const struct pd_family pd_family_resnet = {
	"resnet", "residual networks", (const struct pd_preset[]){
		{ "resnet50", "layers=50 " IMAGENET }, { "resnet18", "layers=18" },
		{ "resnet34", "layers=34" }, { "resnet101", "layers=101" },
		{ "resnet152", "layers=152" }, { NULL } }, build_resnet
};
const struct pd_family pd_family_resnext = {
	"resnext", "residual networks with grouped convolutions", (const struct pd_preset[]){
		{ "resnext50-32x4d", "layers=50 groups=32 width=4 " IMAGENET },
		{ "resnext101-32x8d", "layers=101 width=8" },
		{ "resnext101-64x4d", "layers=101 groups=64" }, { NULL } }, build_resnext
};
