/* SPDX-License-Identifier: Apache-2.0 */
/* What pd-model makes of ONNX nodes: a kind of layer for each operator or pattern, or a sentence. */
#include "doors/onnx/onnx.h"

#include "base/mem.h"
#include "model/model.h"
#include "onnx_text.h"
#include "scratch.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *file, *frozen;

/* Writes the layers but the loss, without their names and inputs: "conv2d {...}; relu {}". */
static char *described(const json_t *document)
{
	const json_t *layers = json_object_get(document, "layers");
	char *text = pd_strdup("");

	for (size_t i = 0; i + 1 < json_array_size(layers); i++) {
		json_t *layer = json_copy(json_array_get(layers, i));
		char *kind = pd_strdup(pd_member_text(layer, "kind")), *rest, *longer;

		json_object_del(layer, "kind");
		json_object_del(layer, "name");
		json_object_del(layer, "inputs");
		rest = json_dumps(layer, JSON_REAL_PRECISION(9));
		longer = pd_format("%s%s%s%s%s", text, i > 0 ? "; " : "", kind, json_object_size(layer) ? " " : "",
				   json_object_size(layer) ? rest : "");
		free(text);
		free(rest);
		free(kind);
		json_decref(layer);
		text = longer;
	}
	return text;
}

static void becomes(const char *what, const char *graph, const char *layers)
{
	struct pd_error err = { .text = "" };
	struct pd_model *model;
	json_t *document;
	char *text;

	onnx_write(file, graph);
	document = pd_onnx_document(file, "m", PD_ONNX_MSE, frozen, &err);
	model = document ? pd_model_parse("m", document, &err) : NULL;
	text = model ? described(document) : pd_strdup(err.text);
	is_str(text, layers, "%s", what);
	free(text);
	pd_model_free(model);
	json_decref(document);
}

static void refused(const char *what, const char *graph, const char *sentence)
{
	struct pd_error err = { .text = "" };
	json_t *document;

	onnx_write(file, graph);
	document = pd_onnx_document(file, "m", PD_ONNX_CROSS_ENTROPY, NULL, &err);
	ok(!document && one_sentence(&err, PD_EXIT_USAGE, file, sentence), "refused: %s", what);
	json_decref(document);
}

#define IMAGE "input x 2 3 8 8\n"
#define ROWS "input x 2 6 8\n"
#define OUT "\noutput y"

/* Means of 3 x 3 windows of 2 x 2 places, which begin at these rows and columns. */
#define WINDOWS(begin) "input x 2 3 4 4\nReshape #[" begin "],#[3;1] -> s\nAdd s,#[0;1] -> a\n" \
	"Reshape a,#[3;2;1;1] -> r4\nExpand r4,#[3;2;3;2] -> re\nReshape re,#[3;2;3;2;1] -> r5\n" \
	"Expand a,#[3;2;3;2] -> ce\nReshape ce,#[3;2;3;2;1] -> c5\nConcat r5,c5 -> w axis=-1\n" \
	"Transpose x -> t perm=2,3,0,1\nGatherND t,w -> g\nTranspose g -> i perm=4,5,0,1,2,3\n" \
	"ReduceMean i,#[-3;-1] -> y keepdims=0\n"

static void test_images(void)
{
	becomes("Conv", IMAGE "tensor c.weight 4 3 3 3\ntensor c.bias 4\n"
		"Conv x,c.weight,c.bias -> y kernel_shape=3,3 pads=1,1,1,1 strides=2,1" OUT,
		"conv2d {\"out_channels\": 4, \"kernel\": 3, \"stride\": [2, 1], \"padding\": 1}");
	becomes("Conv with a bias of zeros", IMAGE "tensor c.weight 6 1 3 3\nExpand #0.0,#[6] -> zeros\n"
		"Conv x,c.weight,zeros -> y group=3 dilations=2,2" OUT,
		"conv2d {\"out_channels\": 6, \"kernel\": 3, \"dilation\": 2, \"groups\": 3, \"bias\": false}");
	becomes("BatchNormalization", IMAGE "tensor b.weight 3\ntensor b.bias 3\ntensor b.running_mean 3\n"
		"tensor b.running_var 3\nBatchNormalization x,b.weight,b.bias,b.running_mean,b.running_var -> y "
		"momentum=0.9 epsilon=0.001" OUT,
		"batchnorm2d {\"eps\": 0.001, \"momentum\": 0.1}");
	becomes("BatchNormalization of rows", "input x 2 5\ntensor b.weight 5\ntensor b.bias 5\ntensor b.running_mean 5\n"
		"tensor b.running_var 5\nBatchNormalization x,b.weight,b.bias,b.running_mean,b.running_var -> y" OUT,
		"reshape {\"shape\": [5, 1, 1]}; batchnorm2d {\"eps\": 1e-5, \"momentum\": 0.1}; flatten");
	refused("BatchNormalization of rows of samples", ROWS "tensor b.weight 8\ntensor b.bias 8\ntensor b.running_mean 8\n"
		"tensor b.running_var 8\nReshape x,#[12;8] -> r\n"
		"BatchNormalization r,b.weight,b.bias,b.running_mean,b.running_var -> n\nReshape n,#[2;6;8] -> y" OUT,
		"expected an axis of samples");
	becomes("MaxPool, whose rounding up changes nothing", IMAGE
		"MaxPool x -> y kernel_shape=2,2 strides=2,2 ceil_mode=1" OUT, "maxpool2d {\"kernel\": 2}");
	becomes("AveragePool", IMAGE "AveragePool x -> y kernel_shape=3,3 strides=1,1 pads=1,1,1,1" OUT,
		"avgpool2d {\"count_include_pad\": false, \"kernel\": 3, \"stride\": 1, \"padding\": 1}");
	becomes("windows that adaptive pooling has", WINDOWS("0;1;2") "output y", "adaptive_avgpool2d "
		"{\"output_size\": [3, 3]}");
	refused("other windows", WINDOWS("0;0;2") "output y", "in a way that is not adaptive_avgpool2d's");
	becomes("GlobalAveragePool and Flatten", IMAGE "GlobalAveragePool x -> p\nFlatten p -> y axis=1" OUT,
		"adaptive_avgpool2d {\"output_size\": 1}; flatten");
	becomes("ReduceMean of channels", IMAGE "ReduceMean x,#[-1;-2] -> y keepdims=0" OUT,
		"adaptive_avgpool2d {\"output_size\": 1}; flatten");
	becomes("ReduceMean along one axis", ROWS "ReduceMean x,#[1] -> y keepdims=0" OUT,
		"mean {\"dim\": 1, \"keepdim\": true}; flatten");
	becomes("ConvTranspose", IMAGE "tensor u.weight 3 5 2 2\nConvTranspose x,u.weight -> y strides=2,2" OUT,
		"conv_transpose2d {\"out_channels\": 5, \"kernel\": 2, \"stride\": 2, \"bias\": false}");
	becomes("Resize to a size", IMAGE "Resize x,,,#[2;3;16;8] -> y mode=nearest nearest_mode=floor "
		"coordinate_transformation_mode=asymmetric" OUT, "upsample {\"size\": [16, 8]}");
	becomes("squeeze and excitation", IMAGE "ReduceMean x,#[2;3] -> m\nSigmoid m -> s\nMul s,x -> y" OUT,
		"adaptive_avgpool2d {\"output_size\": 1}; sigmoid; mul");
	refused("pads that differ", IMAGE "MaxPool x -> y kernel_shape=2,2 pads=0,0,1,1" OUT,
		"pads 0 on one side and 1 on the other");
	refused("a size that is rounded up", IMAGE "MaxPool x -> y kernel_shape=3,3 strides=2,2 ceil_mode=1" OUT,
		"ceil_mode");
	refused("Resize of another kind", IMAGE "Resize x,,,#[2;3;16;16] -> y mode=cubic" OUT, "expected nearest");
}

static void test_channels(void)
{
	becomes("Conv of one axis", "input x 2 3 9\ntensor c.weight 4 3 3\nConv x,c.weight -> y strides=2, pads=1,1" OUT,
		"conv1d {\"out_channels\": 4, \"kernel\": 3, \"stride\": 2, \"padding\": 1, \"bias\": false}");
	becomes("GroupNormalization", IMAGE "tensor n.weight 3\ntensor n.bias 3\n"
		"GroupNormalization x,n.weight,n.bias -> y num_groups=3" OUT, "groupnorm {\"num_groups\": 3, \"eps\": 1e-5}");
	becomes("PRelu of one number", IMAGE "tensor p.weight 1\nReshape p.weight,#[1;1;1] -> s\nPRelu x,s -> y" OUT,
		"prelu");
	becomes("PRelu of a number for each channel", IMAGE "tensor p.weight 3\nReshape p.weight,#[1;3;1;1] -> s\n"
		"PRelu x,s -> y" OUT, "prelu {\"num_parameters\": 3}");
}

static void test_rows(void)
{
	becomes("activations", ROWS "Relu x -> a\nSigmoid a -> b\nTanh b -> c\nHardSwish c -> d\n"
		"HardSigmoid d -> e alpha=0.16666667 beta=0.5\nLeakyRelu e -> f alpha=0.2\nElu f -> g\n"
		"Gelu g -> h approximate=tanh\nSoftmax h -> i axis=-1\nClip i,#0.0,#6.0 -> y" OUT,
		"relu; sigmoid; tanh; hardswish; hardsigmoid; leaky_relu {\"negative_slope\": 0.2}; "
		"elu {\"alpha\": 1.0}; gelu {\"approximate\": \"tanh\"}; softmax {\"dim\": 2}; relu6");
	becomes("Gelu of erf", ROWS "Div x,#1.4142135 -> a\nErf a -> b\nAdd b,#1.0 -> c\nMul x,c -> d\nMul d,#0.5 -> y"
		OUT, "gelu");
	becomes("Gelu of tanh, halved first", ROWS "Mul x,#0.5 -> h\nPow x,#3.0 -> a\nMul a,#0.044715 -> b\nAdd x,b -> c\n"
		"Mul c,#0.7978846 -> d\nTanh d -> e\nAdd e,#1.0 -> f\nMul h,f -> y" OUT, "gelu {\"approximate\": \"tanh\"}");
	becomes("SiLU", ROWS "Sigmoid x -> s\nMul x,s -> y" OUT, "silu");
	becomes("LayerNormalization", ROWS "tensor n.weight 8\ntensor n.bias 8\n"
		"LayerNormalization x,n.weight,n.bias -> y epsilon=0.000001" OUT, "layernorm {\"eps\": 1e-6}");
	becomes("RMSNormalization", ROWS "tensor n.weight 8\nRMSNormalization x,n.weight -> y epsilon=0.000001" OUT,
		"rmsnorm {\"eps\": 1e-6}");
	becomes("RMSNorm, written out", ROWS "tensor n.weight 8\nPow x,#2.0 -> a\nReduceMean a,#[-1] -> b\n"
		"Add b,#0.00001 -> c\nSqrt c -> d\nReciprocal d -> e\nMul x,e -> f\nMul n.weight,f -> y" OUT,
		"rmsnorm {\"eps\": 1e-5}");
	becomes("RMSNorm over positions is none", ROWS "tensor n.weight 8\nPow x,#2.0 -> a\nReduceMean a,#[1] -> b\n"
		"Add b,#0.00001 -> c\nSqrt c -> d\nReciprocal d -> e\nMul x,e -> f\nMul n.weight,f -> z\nRelu x -> y" OUT,
		"relu");
	becomes("Dropout", ROWS "Dropout x,#0.25,#1.0 -> y" OUT, "dropout {\"p\": 0.25}");
	becomes("Dropout that is off", ROWS "Relu x -> r\nDropout r,#0.25 -> y" OUT, "relu");
	becomes("another HardSigmoid", ROWS "HardSigmoid x -> y alpha=0.25" OUT,
		"affine {\"times\": 0.25, \"plus\": 0.5}; clamp {\"min\": 0.0, \"max\": 1.0}");
	becomes("other bounds", ROWS "Clip x,#-1.0,#1.0 -> y" OUT, "clamp {\"min\": -1.0, \"max\": 1.0}");
	becomes("one bound", ROWS "Clip x,#0.25 -> y" OUT, "clamp {\"min\": 0.25}");
	becomes("functions", ROWS "Exp x -> a\nLog a -> b\nAbs b -> c\nSoftplus c -> d\nSin d -> e\nCos e -> f\n"
		"Erf f -> g\nSqrt g -> h\nReciprocal h -> i\nPow i,#3.0 -> y" OUT, "exp; log; abs; softplus; sin; cos; erf; "
		"pow {\"exponent\": 0.5}; pow {\"exponent\": -1.0}; pow {\"exponent\": 3.0}");
	becomes("functions of several", ROWS "Softsign x -> a\nMish a -> b\nSelu b -> y alpha=2. gamma=3." OUT,
		"abs; affine {\"times\": 1.0, \"plus\": 1.0}; pow {\"exponent\": -1.0}; mul; softplus; tanh; mul; "
		"elu {\"alpha\": 2.0}; affine {\"times\": 3.0}");
	becomes("quotients", ROWS "Sigmoid x -> s\nDiv x,s -> q\nDiv #2.0,q -> y" OUT, "sigmoid; pow {\"exponent\": -1.0}; "
		"mul; pow {\"exponent\": -1.0}; affine {\"times\": 2.0}");
	refused("a softmax of several axes", ROWS "LogSoftmax x -> y axis=1" OUT, "LogSoftmax");
	refused("an operator that is not known", ROWS "Relu x -> a\nDet a -> y" OUT, "y (Det): no kind of layer");
}

/* Sums and products with numbers are one layer, whatever moves axes between them. */
static void test_numbers(void)
{
	becomes("a factor", ROWS "Mul x,#2.0 -> a\nRelu a -> y" OUT, "affine {\"times\": 2.0}; relu");
	becomes("a factor at the end", ROWS "Mul x,#2.0 -> y" OUT, "affine {\"times\": 2.0}");
	becomes("a summand", ROWS "Add x,#2.0 -> y" OUT, "affine {\"times\": 1.0, \"plus\": 2.0}");
	becomes("a number without x", ROWS "Sub #1.0,x -> a\nDiv a,#4.0 -> y" OUT,
		"affine {\"times\": -0.25, \"plus\": 0.25}");
	becomes("a negative", ROWS "Neg x -> a\nTranspose a -> b perm=0,2,1\nSub b,#3.0 -> c\n"
		"Transpose c -> y perm=0,2,1" OUT, "affine {\"times\": -1.0, \"plus\": -3.0}");
	becomes("numbers that leave it as it is", ROWS "Mul x,#0.5 -> a\nAdd a,#1.0 -> b\nSub b,#1.0 -> c\n"
		"Mul c,#2.0 -> d\nRelu d -> y" OUT, "relu");
	becomes("a constant of one number in all places", ROWS "Expand #2.0,#[6;8] -> c\nMul c,x -> y" OUT,
		"affine {\"times\": 2.0}");
	becomes("one that repeats what there is", "input x 2 1 8\nExpand #2.0,#[6;8] -> c\nMul c,x -> m\n"
		"tensor p 6 8\nAdd m,p -> y" OUT, "parameter {\"shape\": [1], \"frozen\": true, \"init\": {\"weight\": [2.0]}, "
		"\"names\": {\"weight\": null}}; reshape {\"shape\": [1, 1]}; mul; parameter {\"shape\": [6, "
		"8], \"names\": {\"weight\": \"p\"}}; add");
	becomes("constants that are computed", ROWS "Range #[0],#[6],#[1] -> i\nCast i -> r to=1\nUnsqueeze r,#[1] -> c\n"
		"Mul c,#0.5 -> d\nAdd x,d -> y" OUT,
		"parameter {\"shape\": [6, 1], \"frozen\": true, \"init\": {\"weight\": [0.0, 0.5, 1.0, 1.5, "
		"2.0, 2.5]}, \"names\": {\"weight\": null}}; add");
	becomes("a function of a buffer", ROWS "buffer b 6 1\nCumSum b,#[0] -> s\nMul x,s -> y" OUT,
		"parameter {\"shape\": [6, 1], \"frozen\": true, \"init\": {\"weight\": [0.5, 1.0, 1.5, 2.0, "
		"2.5, 3.0]}, \"names\": {\"weight\": null}}; mul");
	becomes("a factor before positions", "tokens x 2 6\ntensor e.weight 9 8\ntensor p 1 6 8\nGather e.weight,x -> a\n"
		"Mul a,#4.0 -> b\nAdd b,p -> y" OUT, "embedding {\"num_embeddings\": 9, \"embedding_dim\": 8}; "
		"affine {\"times\": 4.0}; position_embedding {\"names\": {\"weight\": {\"shape\": [1, 6, 8], \"name\": "
		"\"p\"}}}");
	becomes("positions with a factor", ROWS "tensor p 6 8\nMul p,#3.0 -> a\nAdd x,a -> y" OUT,
		"parameter {\"shape\": [6, 8], \"names\": {\"weight\": \"p\"}}; affine {\"times\": 3.0}; add");
	becomes("a factor before a bias", ROWS "tensor l.weight 8 8\ntensor b 8\nMatMul x,l.weight -> m\n"
		"Mul m,#3.0 -> s\nAdd s,b -> y" OUT, "linear {\"out_features\": 8, \"bias\": false, \"names\": "
		"{\"weight\": {\"transpose\": true, \"name\": \"l.weight\"}}}; affine {\"times\": 3.0}; "
		"bias {\"names\": {\"bias\": \"b\"}}");
	becomes("a bias with a factor", ROWS "tensor b 8\nMul b,#3.0 -> c\nRelu x -> r\nAdd r,c -> y" OUT,
		"relu; parameter {\"shape\": [8], \"names\": {\"weight\": \"b\"}}; affine {\"times\": 3.0}; "
		"reshape {\"shape\": [1, 8]}; add");
	becomes("a difference", ROWS "Relu x -> a\nSub x,a -> y" OUT, "relu; affine {\"times\": -1.0}; add");
	becomes("a factor in front of what a pattern is", ROWS "Mul x,#3.0 -> a\nSigmoid a -> s\nMul a,s -> y" OUT,
		"affine {\"times\": 3.0}; silu");
}

/* What was a buffer in PyTorch stays as it is; what no state_dict has, no file of parameters has. */
static void test_buffers(void)
{
	becomes("a buffer", ROWS "buffer s 8\nMul x,s -> y" OUT, "parameter {\"shape\": [1, 8], \"frozen\": true, "
		"\"init\": {\"weight\": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]}, \"names\": {\"weight\": {\"shape\": [8], "
		"\"name\": \"s\"}}}; mul");
	becomes("one that no state_dict has", "input x 2 2\ntransient s 2\nMul x,s -> y" OUT,
		"parameter {\"shape\": [2], \"frozen\": true, \"init\": {\"weight\": [0.5, 0.5]}, \"names\": "
		"{\"weight\": null}}; mul");
	becomes("a tensor of forward", "input x 2 2\nconstant s 2\nMul x,s -> y" OUT,
		"parameter {\"shape\": [2], \"frozen\": true, \"init\": {\"weight\": [0.5, 0.5]}, \"names\": "
		"{\"weight\": null}}; mul");
	becomes("a large buffer", "input x 2 200 100\nbuffer p 200 100\nAdd x,p -> y" OUT,
		"position_embedding {\"frozen\": true, \"init\": {\"weight\": \"given\"}, \"names\": {\"weight\": \"p\"}}");
	becomes("a large one that no state_dict has", "input x 2 200 100\ntransient p 200 100\nAdd x,p -> y" OUT,
		"position_embedding {\"frozen\": true, \"init\": {\"weight\": \"given\"}, \"names\": {\"weight\": "
		"{\"export\": false, \"name\": \"p\"}}}");
	becomes("a kernel that stays, and a bias that learns", "input x 2 1 4 4\nbuffer k 1 1 1 1\ntensor b 1\n"
		"Conv x,k,b -> y" OUT, "conv2d {\"out_channels\": 1, \"kernel\": 1, \"bias\": false, \"frozen\": true, "
		"\"init\": {\"weight\": [0.5]}, \"names\": {\"weight\": \"k\"}}; parameter {\"shape\": [1, 1, 1], \"names\": "
		"{\"weight\": {\"shape\": [1], \"name\": \"b\"}}}; add");
	becomes("running statistics", IMAGE "tensor b.weight 3\ntensor b.bias 3\nbuffer b.running_mean 3\n"
		"buffer b.running_var 3\nBatchNormalization x,b.weight,b.bias,b.running_mean,b.running_var -> y" OUT,
		"batchnorm2d {\"eps\": 1e-5, \"momentum\": 0.1}");
	becomes("BatchNormalization without scale", IMAGE "buffer b.running_mean 3\nbuffer b.running_var 3\n"
		"Expand #1.0,#[3] -> one\nExpand #0.0,#[3] -> none\n"
		"BatchNormalization x,one,none,b.running_mean,b.running_var -> y" OUT,
		"batchnorm2d {\"eps\": 1e-5, \"momentum\": 0.1, \"frozen\": true, \"names\": {\"weight\": null, "
		"\"bias\": null}}");
	frozen = "b,c";
	becomes("BatchNormalization that stays as it is", "input x 2 1 8 8\ntensor b.weight 1\ntensor b.bias 1\n"
		"buffer b.running_mean 1\nbuffer b.running_var 1\n"
		"BatchNormalization x,b.weight,b.bias,b.running_mean,b.running_var -> y epsilon=0.001" OUT,
		"parameter {\"shape\": [1, 1, 1], \"frozen\": true, \"init\": {\"weight\": [0.5]}, "
		"\"names\": {\"weight\": {\"shape\": [1], \"name\": \"b.running_mean\"}}}; "
		"parameter {\"shape\": [1, 1, 1], \"frozen\": true, \"init\": {\"weight\": [0.5]}, "
		"\"names\": {\"weight\": {\"shape\": [1], \"name\": \"b.running_var\"}}}; "
		"affine {\"plus\": 0.001}; pow {\"exponent\": -0.5}; parameter {\"shape\": [1, 1, 1], "
		"\"frozen\": true, \"init\": {\"weight\": [0.5]}, \"names\": {\"weight\": {\"shape\": [1], "
		"\"name\": \"b.weight\"}}}; mul; mul; affine {\"times\": -1.0}; parameter {\"shape\": [1, 1, "
		"1], \"frozen\": true, \"init\": {\"weight\": [0.5]}, \"names\": {\"weight\": {\"shape\": [1], "
		"\"name\": \"b.bias\"}}}; add; mul; add");
	frozen = NULL;
	refused("a scale that learns beside a shift that does not", ROWS "tensor n.weight 8\nbuffer n.bias 8\n"
		"LayerNormalization x,n.weight,n.bias -> y" OUT, "other parameters of its layernorm are not");
}

static void test_products(void)
{
	becomes("MatMul of a transposed weight, and Add", ROWS "tensor l.weight 4 8\ntensor l.bias 4\n"
		"Transpose l.weight -> t perm=1,0\nMatMul x,t -> m\nAdd m,l.bias -> y" OUT, "linear {\"out_features\": 4}");
	becomes("MatMul of a weight as it is", ROWS "tensor l.weight 8 4\nMatMul x,l.weight -> y" OUT,
		"linear {\"out_features\": 4, \"bias\": false, \"names\": {\"weight\": {\"transpose\": true, \"name\": "
		"\"l.weight\"}}}");
	becomes("Gemm of joined rows", ROWS "tensor l.weight 4 8\ntensor l.bias 4\nReshape x,#[12;8] -> a\n"
		"Gemm a,l.weight,l.bias -> b transB=1\nReshape b,#[2;6;4] -> y" OUT, "linear {\"out_features\": 4}");
	becomes("a bias by itself", ROWS "tensor b 8\nRelu x -> a\nAdd a,b -> y" OUT,
		"relu; bias {\"names\": {\"bias\": \"b\"}}");
	becomes("positions", ROWS "tensor p 1 6 8\nAdd x,p -> y" OUT,
		"position_embedding {\"names\": {\"weight\": {\"shape\": [1, 6, 8], \"name\": \"p\"}}}");
	becomes("positions that are looked up", "tokens x 2 6\ntensor e.weight 9 8\ntensor p.weight 7 8\n"
		"Gather e.weight,x -> a\nGather p.weight,#[0;1;2;3;4;5] -> b\nAdd a,b -> y" OUT,
		"embedding {\"num_embeddings\": 9, \"embedding_dim\": 8}; position_embedding {\"num_embeddings\": 7}");
	becomes("a scale of channels", IMAGE "tensor s 3 1 1\nMul s,x -> y" OUT,
		"parameter {\"shape\": [3, 1, 1], \"names\": {\"weight\": \"s\"}}; mul");
	becomes("a token for each sample", ROWS "tensor c 1 1 8\nExpand c,#[2;1;8] -> e\nConcat e,x -> y axis=1" OUT,
		"parameter {\"shape\": [1, 8], \"names\": {\"weight\": {\"shape\": [1, 1, 8], \"name\": \"c\"}}}; "
		"concat {\"dim\": 1}");
	becomes("a row that is padding", "tokens x 2 6\ntensor e.weight 9 8\nGather@e:3 e.weight,x -> y" OUT,
		"embedding {\"num_embeddings\": 9, \"embedding_dim\": 8, \"padding_idx\": 3}");
	becomes("other arguments of an embedding", "tokens x 2 6\ntensor e.weight 9 8\n"
		"Gather@e:-1,True e.weight,x -> a\nGather@f:9,False e.weight,x -> b\nAdd a,b -> y" OUT,
		"embedding {\"num_embeddings\": 9, \"embedding_dim\": 8}; "
		"embedding {\"num_embeddings\": 9, \"embedding_dim\": 8, \"shares\": \"e\", \"names\": "
		"{\"weight\": {\"name\": \"e.weight\", \"also\": [\"f.weight\"]}}}; add");
	becomes("a weight that two share", "tokens x 2 6\ntensor e.weight 9 8\nGather e.weight,x -> a\n"
		"Transpose e.weight -> t\nMatMul a,t -> y" OUT,
		"embedding {\"num_embeddings\": 9, \"embedding_dim\": 8}; "
		"linear {\"out_features\": 9, \"bias\": false, \"shares\": \"e\"}");
	refused("a weight as it is and transposed", ROWS "tensor l.weight 8 8\nTranspose l.weight -> t perm=1,0\n"
		"MatMul x,t -> a\nMatMul a,l.weight -> y" OUT, "as it is, and transposed");
	becomes("a function of one number", ROWS "tensor p\nExp p -> e\nMul x,e -> y" OUT,
		"parameter {\"shape\": [1], \"names\": {\"weight\": {\"shape\": [], \"name\": \"p\"}}}; exp; "
		"reshape {\"shape\": [1, 1]}; mul");
	refused("a product of activations", ROWS "Transpose x -> t perm=0,2,1\nMatMul x,t -> y" OUT,
		"attention is read where it is one node");
	refused("an LSTM", ROWS "tensor w 1 32 8\ntensor r 1 32 8\nLSTM x,w,r -> y" OUT, "write the network as pd-model(5)");
	refused("numbers that are computed", "input x 2 6\ntensor e.weight 9 8\nCast x -> i to=7\n"
		"Gather e.weight,i -> y" OUT, "layers compute with reals");
}

static void test_axes(void)
{
	becomes("axes that come back", ROWS "Reshape x,#[2;6;2;4] -> a\nTranspose a -> b perm=0,2,1,3\n"
		"Transpose b -> c perm=0,2,1,3\nReshape c,#[2;6;8] -> d\nRelu d -> y" OUT, "relu");
	becomes("a part of an axis", ROWS "Slice x,#[2],#[4],#[1],#[1] -> y" OUT,
		"slice {\"dim\": 1, \"start\": 2, \"end\": 4}");
	becomes("places in front", ROWS "Pad x,#[0;2;0;0;0;0] -> y" OUT, "parameter {\"shape\": [2, 8], \"frozen\": true, "
		"\"init\": {\"weight\": 0.0}, \"names\": {\"weight\": null}}; concat {\"dim\": 1}");
	becomes("places of one axis on both sides", ROWS "Pad x,#[1;3],#2.5,#[-1] -> y" OUT,
		"parameter {\"shape\": [6, 1], \"frozen\": true, \"init\": {\"weight\": 2.5}, \"names\": {\"weight\": null}}; "
		"parameter {\"shape\": [6, 3], \"frozen\": true, \"init\": {\"weight\": 2.5}, \"names\": {\"weight\": null}}; "
		"concat {\"dim\": 2}");
	refused("pads of samples", ROWS "Pad x,#[1;0;0;0;0;0] -> y" OUT, "pads the samples");
	refused("pads that mirror", ROWS "Pad x,#[0;2;0;0;0;0] -> y mode=reflect" OUT, "pads by reflect");
	becomes("Split", ROWS "Split x -> a,b axis=2 num_outputs=2\nAdd a,b -> y" OUT,
		"slice {\"dim\": 2, \"start\": 0, \"end\": 4}; slice {\"dim\": 2, \"start\": 4, \"end\": 8}; add");
	becomes("the first position", ROWS "Gather x,#[0] -> a axis=1\nSqueeze a,#[1] -> y" OUT,
		"slice {\"dim\": 1, \"start\": 0, \"end\": 1}; flatten");
	becomes("channels that change places", IMAGE "Transpose x -> y perm=0,2,3,1" OUT,
		"transpose {\"dim0\": 1, \"dim1\": 3}; transpose {\"dim0\": 1, \"dim1\": 2}");
	becomes("shapes that are computed", ROWS "Shape x -> s\nSlice s,#[0],#[2] -> t\nConcat t,#[2;4] -> u axis=0\n"
		"Reshape x,u -> a\nRelu a -> b\nReshape b,s -> y" OUT, "relu");
	becomes("a part without places", ROWS "Slice x,#[8],#[99],#[2] -> e\nConcat x,e -> a axis=2\nRelu a -> y" OUT,
		"relu");
	refused("every second place", ROWS "Slice x,#[0],#[6],#[1],#[2] -> y" OUT, "some places of an axis, 2 apart");
	refused("another order of places", ROWS "Gather x,#[1;0] -> y axis=1" OUT, "in another order");
}

#define HEADS(name, from) "Reshape " from ",#[2;6;2;4] -> " name "r\nTranspose " name "r -> " name " perm=0,2,1,3\n"
#define QKV ROWS HEADS("q", "x") HEADS("k", "x") HEADS("v", "x")
#define JOINED "Transpose a -> b perm=0,2,1,3\nReshape b,#[2;6;8] -> y" OUT

/* Distances 0, 1 and more before the query, and 1 and more behind it. */
#define T5 "tensor rel.weight 4 2\nReshape #[0;1;2;3;4;5],#[6;1] -> row\nSub #[0;1;2;3;4;5],row -> d\n" \
	   "Greater d,#[0] -> g\nLess d,#[0] -> l\nCast g -> gi to=7\nCast l -> li to=7\nMul gi,#[3] -> g3\n" \
	   "Add g3,li -> rows\n" LOOKED_UP
#define LOOKED_UP "Gather rel.weight,rows -> e\nTranspose e -> h perm=2,0,1\nUnsqueeze h,#[0] -> bias\n"
#define PRODUCTS "Transpose k -> kt perm=0,1,3,2\nMatMul q,kt -> s\n"
#define SOFTENED(scores) "Softmax " scores " -> p axis=-1\nMatMul p,v -> a\n"

static void test_attention(void)
{
	becomes("Attention", QKV "Attention q,k,v -> a is_causal=1\n" JOINED, "attention {\"heads\": 2, \"causal\": true}");
	becomes("a scale of its own", QKV "Attention q,k,v -> a scale=0.25\n" JOINED,
		"attention {\"heads\": 2, \"scale\": 0.25}");
	becomes("a scale of the queries", ROWS "Mul x,#0.25 -> z\n" HEADS("q", "z") HEADS("k", "x") HEADS("v", "x")
		"Attention q,k,v -> a scale=1.0\n" JOINED, "attention {\"heads\": 2, \"scale\": 0.25}");
	becomes("a mask that hides the future", QKV "Range #[0],#[6],#[1] -> p0\nReshape #[0;1;2;3;4;5],#[6;1] -> row\n"
		"LessOrEqual #[0;1;2;3;4;5],row -> m\nAttention q,k,v,m -> a\n" JOINED,
		"attention {\"heads\": 2, \"causal\": true}");
	becomes("a mask that hides nothing", QKV "Reshape #[0;1;2;3;4;5],#[6;1] -> row\nLessOrEqual row,#[9] -> m\n"
		"Attention q,k,v,m -> a\n" JOINED, "attention {\"heads\": 2}");
	becomes("a mask that hides what is behind a window", QKV "Reshape #[0;1;2;3;4;5],#[6;1] -> row\n"
		"LessOrEqual #[0;1;2;3;4;5],row -> c\nSub row,#[3] -> late\nGreater #[0;1;2;3;4;5],late -> w\nAnd c,w -> m\n"
		"Attention q,k,v,m -> a\n" JOINED, "attention {\"heads\": 2, \"causal\": true, \"window\": 3}");
	becomes("keys that serve several heads", ROWS "tensor k.weight 8 4\nMatMul x,k.weight -> s\n" HEADS("q", "x")
		"Reshape s,#[2;6;1;4] -> sr\nTranspose sr -> st perm=0,2,1,3\nUnsqueeze st,#[2] -> su\n"
		"Expand su,#[2;1;2;6;4] -> se\nReshape se,#[2;2;6;4] -> k\nAttention q,k,k -> a\n" JOINED,
		"linear {\"out_features\": 4, \"bias\": false, \"names\": {\"weight\": {\"transpose\": true, \"name\": "
		"\"k.weight\"}}}; attention {\"heads\": 2, \"kv_heads\": 1}");
	becomes("attention that is written out", QKV PRODUCTS SOFTENED("s") JOINED, "attention {\"heads\": 2, \"scale\": 1.0}");
	becomes("the same with a factor and a mask", QKV PRODUCTS "Reshape #[0;1;2;3;4;5],#[6;1] -> row\n"
		"LessOrEqual #[0;1;2;3;4;5],row -> c\nWhere c,#0.0,#-3.0e38 -> m\nDiv s,#2.0 -> f\nAdd m,f -> u\n"
		SOFTENED("u") JOINED, "attention {\"heads\": 2, \"causal\": true}");
	becomes("scores that are filled where a mask hides them", QKV PRODUCTS "Reshape #[0;1;2;3;4;5],#[6;1] -> row\n"
		"Greater #[0;1;2;3;4;5],row -> c\nDiv s,#2.0 -> f\nWhere c,#-1.0e9,f -> u\n" SOFTENED("u") JOINED,
		"attention {\"heads\": 2, \"causal\": true}");
	refused("scores that are filled with what counts", QKV PRODUCTS "Reshape #[0;1;2;3;4;5],#[6;1] -> row\n"
		"Greater #[0;1;2;3;4;5],row -> c\nWhere c,#-1.0,s -> u\n" SOFTENED("u") JOINED, "multiplies two activations");
	refused("positions in front of samples", "input x 6 2 8\nReshape x,#[6;2;2;4] -> r\n"
		"Transpose r -> q perm=1,2,0,3\nAttention q,q,q -> y" OUT, "batch_first=True");
	becomes("a bias of relative positions", QKV T5 "Attention q,k,v,bias -> a scale=1.0\n" JOINED,
		"attention {\"heads\": 2, \"scale\": 1.0, \"relative_buckets\": 4, \"max_distance\": 128}");
	becomes("the same, written out twice, with a mask that hides nothing", QKV T5 "Expand #0.0,#[2;1;6;6] -> m\n"
		PRODUCTS "Add s,bias -> u\nAdd u,m -> w\n" SOFTENED("w")
		"Transpose a -> kt2 perm=0,1,3,2\nMatMul q,kt2 -> s2\nAdd s2,bias -> u2\nSoftmax u2 -> p2\n"
		"MatMul p2,a -> a2\nTranspose a2 -> b perm=0,2,1,3\nReshape b,#[2;6;8] -> y" OUT,
		"attention {\"heads\": 2, \"scale\": 1.0, \"relative_buckets\": 4, \"max_distance\": 128}; "
		"attention {\"heads\": 2, \"scale\": 1.0, \"relative_buckets\": 4, \"max_distance\": 128, "
		"\"shares\": \"rel\"}");
	refused("buckets of keys that a mask hides", QKV T5 "LessOrEqual #[0;1;2;3;4;5],row -> c\n"
		"Where c,#0.0,#-3.0e38 -> m\nAdd m,bias -> both\nAttention q,k,v,both -> a\n" JOINED,
		"has a bias for keys behind the query, which a mask hides");
	refused("another bias", QKV "tensor rel.weight 6 2\nReshape #[0;1;2;3;4;5],#[6;1] -> row\n"
		"Min #[0;1;2;3;4;5],row -> rows\n" LOOKED_UP "Attention q,k,v,bias -> a\n" JOINED,
		"or a bias of relative positions as T5 has it");
	refused("another mask", QKV "Reshape #[0;1;2;3;4;5],#[6;1] -> row\nLess #[0;1;2;3;4;5],row -> m\n"
		"Attention q,k,v,m -> a\n" JOINED, "has a mask, m: expected one that hides nothing");
	refused("a cap", QKV "Attention q,k,v -> a softcap=30.0\n" JOINED, "caps its scores");
}

/* Writes nodes that rotate x, of 2 samples, 6 positions and 8 pairs, by these angles. */
static char *rotated(const double *angles)
{
	char *text = pd_strdup("input x 2 1 6 16\n"), *parts = pd_strdup(""), *all;

	for (int i = 0; i < 8; i++) {
		char *longer = pd_format("%sReshape #%.9g,#[1] -> f%d\n", text, angles[i], i);
		char *more = pd_format("%s%sf%d", parts, i > 0 ? "," : "", i);

		free(text);
		free(parts);
		text = longer;
		parts = more;
	}
	all = pd_format("%sConcat %s -> f axis=0\nRange #0.0,#6.0,#1.0 -> p\nUnsqueeze p,#[1] -> q\nMul q,f -> h\n"
			"Concat h,h -> a axis=1\nCos a -> c\nSin a -> s\nSplit x -> l,u axis=3 num_outputs=2\n"
			"Neg u -> n\nConcat n,l -> r axis=3\nMul x,c -> xc\nMul r,s -> rs\nAdd xc,rs -> y" OUT, text, parts);
	free(text);
	free(parts);
	return all;
}

static void test_rotary(void)
{
	double angles[8];
	char *text;

	for (int i = 0; i < 8; i++)
		angles[i] = pow(500000, -i / 8.0);
	text = rotated(angles);
	becomes("rotary positions", text, "reshape {\"shape\": [6, 16]}; rope {\"base\": 500000.0}; "
		"reshape {\"shape\": [1, 6, 16]}");
	free(text);
	for (int i = 0; i < 8; i++) {           /* factor 8, low 1, high 4, original 64 */
		double share = (64 * angles[i] / (2 * M_PI) - 1) / 3;

		share = share < 0 ? 0 : share > 1 ? 1 : share;
		angles[i] *= share + (1 - share) / 8;
	}
	text = rotated(angles);
	becomes("scaled as Llama 3.1 does", text, "reshape {\"shape\": [6, 16]}; rope {\"base\": 500000.0, "
		"\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_positions\": 64}; "
		"reshape {\"shape\": [1, 6, 16]}");
	free(text);
	angles[4] *= 1.5;
	text = rotated(angles);
	refused("other angles", text, "no powers of one base");
	free(text);
}

/* A mask of tokens becomes the length of each sample. */
static void test_lengths(void)
{
	struct pd_error err = { .text = "" };
	json_t *document;

	onnx_write(file, QKV "tokens mask 2 6\nReshape mask,#[2;1;1;6] -> c\nCast c -> m to=9\n"
		   "Expand m,#[2;1;6;6] -> e\nAttention q,k,v,e -> a\n" JOINED);
	document = pd_onnx_document(file, "m", PD_ONNX_MSE, NULL, &err);
	is_str(pd_member_text(json_array_get(json_object_get(document, "inputs"), 1), "name"), "length",
	       "a mask of tokens becomes a length %s", err.text);
	json_decref(document);
}

static void test_files(void)
{
	refused("a batch that is not known", "input x batch 8\nRelu x -> y" OUT, "found batch: export without dynamic");
	refused("a weight that was computed", ROWS "tensor val_3 8 4\nMatMul x,val_3 -> y" OUT, "optimize=False");
	refused("a convolution that a normalisation was folded into", IMAGE "tensor c.weight 4 3 3 3\ntensor c.bias 4\n"
		"Conv@c x,c.weight,c.bias -> getitem\nRelu@r getitem -> y" OUT, "optimize=False");
	refused("a scale that two modules were given", ROWS "tensor a.weight 8\ntensor a.bias 8\n"
		"LayerNormalization@a x,a.weight,a.bias -> z\nLayerNormalization@b z,a.weight,a.bias -> y" OUT,
		"a.weight: parameters were folded or merged");
	refused("two outputs", ROWS "Relu x -> y\nTanh x -> z\noutput z" OUT, "one output");
	refused("a value that nobody makes", ROWS "Relu z -> y" OUT, "expected a value that is made before");
	refused("a value that is made twice", ROWS "Relu x -> y\nTanh x -> y" OUT, "found two");
	refused("inputs of several batches", "input x 2 8\ninput z 3 8\nRelu x -> y" OUT, "expected 2 samples");
	refused("one number for each sample", "input x 2 8\nReduceMean x,#[1] -> y keepdims=0" OUT, "--loss=mse takes it");
	becomes("images have a loss for each pixel", IMAGE "Relu x -> y" OUT, "relu");
}

/* Writes the names of the layers but the loss, and what a file calls their parameters. */
static void test_names(void)
{
	static const char *const expected[] = { "e", "block.relu", "block.relu_2", "block.act", "block.linear.reshape",
						"block.linear", "head" };
	struct pd_error err = { .text = "" };
	json_t *document, *layers;

	onnx_write(file, "tokens x 2 6\ntensor head.weight 9 8\ntensor block.linear.weight 48 48\n"
		   "Gather@e head.weight,x -> a\nRelu@block a -> b\nRelu@block b -> c\nTanh@block.act c -> d\n"
		   "Reshape@block d,#[2;1;48] -> f\nTranspose block.linear.weight -> w\n"
		   "MatMul@block.linear f,w -> g\nReshape@block g,#[2;6;8] -> h\nTranspose@head head.weight -> v\n"
		   "MatMul@head h,v -> y" OUT);
	document = pd_onnx_document(file, "m", PD_ONNX_CROSS_ENTROPY, NULL, &err);
	layers = json_object_get(document, "layers");
	for (size_t i = 0; i < PD_COUNT(expected) - 1; i++)
		is_str(pd_member_text(json_array_get(layers, i), "name"), expected[i], "%s %s", expected[i], err.text);
	is_str(pd_member_text(json_object_get(json_array_get(layers, 0), "names"), "weight"), "head.weight",
	       "a tied weight has the name in the file");
	is_str(pd_member_text(json_object_get(json_array_get(layers, json_array_size(layers) - 2), "names"), "weight"),
	       "e.weight", "and its other name, in PyTorch");
	json_decref(document);
}

int main(void)
{
	file = pd_strdup(scratch_path("net.onnx"));
	test_images();
	test_channels();
	test_rows();
	test_numbers();
	test_buffers();
	test_products();
	test_axes();
	test_attention();
	test_rotary();
	test_lengths();
	test_files();
	test_names();
	free((char *)file);
	return done_testing();
}
