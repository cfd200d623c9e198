/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of LSTMs: the translator, the language model and the captioner that PipeDream trains. */
#include "network/builder.h"

#include <inttypes.h>
#include <math.h>

static const char *lstm(struct pd_network *n, const char *name, const char *in, int64_t hidden)
{
	return pd_network_layer(n, "lstm", name, in, "{s:I}", "hidden_size", (json_int_t)hidden);
}

static const char *beside(struct pd_network *n, const char *name, const char *inputs)
{
	return pd_network_layer(n, "concat", name, inputs, "{s:i}", "dim", -1);
}

/* ---- GNMT ---- */

static const char *gnmt_embedding(struct pd_network *n, const char *name, const char *in,
				  const struct pd_network_size *size)
{
	return pd_network_layer(n, "embedding", name, in, "{s:I, s:I, s:i}", "num_embeddings",
				(json_int_t)size->vocabulary, "embedding_dim",
				(json_int_t)size->hidden, "padding_idx", 0);
}

static const char *gnmt_dropped(struct pd_network *n, const char *layer, const char *in,
				const struct pd_network_size *size)
{
	return pd_network_dropout(n, pd_network_name(n, "%s.dropout", layer), in, size->dropout);
}

static const char *gnmt_residual(struct pd_network *n, const char *layer, const char *in,
				 const char *out)
{
	return pd_network_layer(n, "add", pd_network_name(n, "%s.add", layer),
				pd_network_name(n, "%s %s", out, in), NULL);
}

/* The first layer reads in both directions, and needs to know where a sentence ends. */
static const char *gnmt_encoder(struct pd_network *n, const struct pd_network_size *size)
{
	const char *at = gnmt_embedding(n, "encoder.embedding", "source", size);

	at = pd_network_layer(n, "lstm", "encoder.1", pd_network_name(n, "%s source_length", at),
			      "{s:I, s:b}", "hidden_size", (json_int_t)size->hidden,
			      "bidirectional", 1);
	for (int64_t l = 2; l <= size->layers; l++) {
		const char *name = pd_network_name(n, "encoder.%" PRId64, l);
		const char *out = lstm(n, name, gnmt_dropped(n, name, at, size), size->hidden);

		at = l > 2 ? gnmt_residual(n, name, at, out) : out;
	}
	return at;
}

/* The context that the first layer's output asks for goes into each of the others, undropped. */
static const char *gnmt_decoder(struct pd_network *n, const char *encoder,
				const struct pd_network_size *size)
{
	const char *at = gnmt_embedding(n, "decoder.embedding", "target", size), *context;

	at = lstm(n, "decoder.1", at, size->hidden);
	context = pd_network_layer(n, "additive_attention", "attention",
				   pd_network_name(n, "%s %s source_length", at, encoder), NULL);
	for (int64_t l = 2; l <= size->layers; l++) {
		const char *name = pd_network_name(n, "decoder.%" PRId64, l);
		const char *in = gnmt_dropped(n, name, at, size), *out;

		in = beside(n, pd_network_name(n, "%s.concat", name),
			    pd_network_name(n, "%s %s", in, context));
		out = lstm(n, name, in, size->hidden);
		at = l > 2 ? gnmt_residual(n, name, at, out) : out;
	}
	return at;
}

/*
 * Wu et al. 2016, as PipeDream has it: one attention, normalised (Bahdanau), whose query is the first
 * decoder layer's output.  Token 0 is padding.
 */
static int build_gnmt(struct pd_network *n, const struct pd_network_size *size,
		      struct pd_error *err)
{
	const char *bound = pd_network_name(n, "uniform(%g)", 1 / sqrt((double)size->hidden)), *at;

	if (size->layers < 2)
		return pd_error_input(err, "--layers=%" PRId64 ": gnmt expects 2 or more in its encoder, of "
				      "which the first reads in both directions", size->layers);
	pd_network_input(n, "source", "i32", 1, size->sequence);
	pd_network_input(n, "source_length", "i32", 0);
	pd_network_input(n, "target", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	at = gnmt_decoder(n, gnmt_encoder(n, size), size);
	at = pd_network_layer(n, "linear", "classifier", at, "{s:I, s:{s:s, s:s}}", "out_features",
			      (json_int_t)size->vocabulary, "init", "weight", bound, "bias", bound);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s labels", at),
			 "{s:i, s:f}", "ignore_index", 0, "label_smoothing", 0.1);
	return 0;
}

/* ---- AWD-LM ---- */

#define DROPOUT_EMBEDDING 0.1
#define DROPOUT_INPUT 0.4
#define DROPOUT_HIDDEN 0.25
#define DROPOUT_WEIGHT 0.5

/* One mask for all places of a sample. */
static const char *locked_dropout(struct pd_network *n, const char *name, const char *in, double p)
{
	return p > 0 ? pd_network_layer(n, "dropout", name, in, "{s:f, s:i}", "p", p, "shared_dim", 1)
		     : in;
}

static const char *awd_lstm(struct pd_network *n, int64_t number, const char *in,
			    const struct pd_network_size *size)
{
	bool last = number == size->layers;
	json_t *more = json_pack("{s:I}", "hidden_size",
				 (json_int_t)(last && !size->untied ? size->embedding : size->hidden));

	if (size->dropout > 0)
		pd_json_set(more, "weight_dropout", json_real(DROPOUT_WEIGHT));
	if (size->lanes > 0)
		pd_json_set(more, "lanes", json_integer(size->lanes));
	return pd_network_layer(n, "lstm", pd_network_name(n, "lstm%" PRId64, number), in, "o", more);
}

static const char *awd_decoder(struct pd_network *n, const char *in,
			       const struct pd_network_size *size)
{
	if (size->untied)
		return pd_network_linear(n, "decoder", in, size->vocabulary);
	in = pd_network_layer(n, "linear", "decoder", in, "{s:I, s:b, s:s}", "out_features",
			      (json_int_t)size->vocabulary, "bias", 0, "shares", "embedding");
	return pd_network_layer(n, "bias", "decoder.bias", in, NULL);
}

static void mean_square(struct pd_network *n, const char *name, const char *in, double weight)
{
	if (weight > 0)
		pd_network_layer(n, "mse", name, in, "{s:f}", "weight", weight);
}

/*
 * Merity et al. 2017, section 4.6: alpha times the mean square of the last layer's dropped output,
 * and beta times that of the difference between its steps before dropout.
 */
static const char *awd_output(struct pd_network *n, const char *in, const struct pd_network_size *size,
			      const char *dropped)
{
	if (size->beta > 0 && size->sequence > 1) {
		const char *late = pd_network_layer(n, "slice", "later", in, "{s:i, s:i}", "dim", 1,
						    "start", 1);
		const char *early = pd_network_layer(n, "slice", "earlier", in, "{s:i, s:I}", "dim", 1,
						     "end", (json_int_t)size->sequence - 1);

		mean_square(n, "change", pd_network_name(n, "%s %s", late, early), size->beta);
	}
	in = locked_dropout(n, dropped, in, size->dropout);
	mean_square(n, "activation", in, size->alpha);
	return in;
}

/* Merity et al. 2017; --dropout is that of the output, and 0 takes away all of them. */
static int build_awd(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	json_t *more = json_pack("{s:I, s:I, s:{s:s}}", "num_embeddings", (json_int_t)size->vocabulary,
				 "embedding_dim", (json_int_t)size->embedding, "init", "weight",
				 "uniform(0.1)");
	const char *at;
	bool drops = size->dropout > 0;

	(void)err;
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	if (drops)
		pd_json_set(more, "weight_dropout", json_real(DROPOUT_EMBEDDING));
	at = pd_network_layer(n, "embedding", "embedding", "tokens", "o", more);
	at = locked_dropout(n, "dropout0", at, drops ? DROPOUT_INPUT : 0);
	for (int64_t l = 1; l <= size->layers; l++) {
		const char *dropped = pd_network_name(n, "dropout%" PRId64, l);

		at = awd_lstm(n, l, at, size);
		at = l < size->layers ? locked_dropout(n, dropped, at, drops ? DROPOUT_HIDDEN : 0)
				      : awd_output(n, at, size, dropped);
	}
	at = awd_decoder(n, at, size);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s labels", at), NULL);
	return 0;
}

/* ---- S2VT ---- */

#define S2VT_BOUND "uniform(0.08)"

static const char *s2vt_lstm(struct pd_network *n, const char *name, const char *in, int64_t hidden)
{
	return pd_network_layer(n, "lstm", name, in, "{s:I, s:i, s:{s:s, s:s, s:i}}", "hidden_size",
				(json_int_t)hidden, "biases", 1, "init", "weight_ih_l0", S2VT_BOUND,
				"weight_hh_l0", S2VT_BOUND, "bias_ih_l0", 0);
}

/*
 * Venugopalan et al. 2015.  Steps are those of the frames, then those of the words: `frames` is 0 in
 * the latter, `words` 0 and `stage` 0 in the former; labels are -1 where there is nothing to say.
 */
static int build_s2vt(struct pd_network *n, const struct pd_network_size *size,
		      struct pd_error *err)
{
	const char *frames, *words, *at;

	(void)err;
	pd_network_input(n, "frames", "f32", 2, size->sequence, size->features);
	pd_network_input(n, "words", "i32", 1, size->sequence);
	pd_network_input(n, "stage", "f32", 2, size->sequence, INT64_C(1));
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	frames = pd_network_layer(n, "linear", "frame", "frames", "{s:I, s:{s:s}}", "out_features",
				  (json_int_t)size->embedding, "init", "weight", S2VT_BOUND);
	words = pd_network_layer(n, "embedding", "word", "words", "{s:I, s:I, s:{s:s}}",
				 "num_embeddings", (json_int_t)size->vocabulary, "embedding_dim",
				 (json_int_t)size->embedding, "init", "weight", S2VT_BOUND);
	at = s2vt_lstm(n, "lstm1", frames, size->hidden);
	at = beside(n, "concat", pd_network_name(n, "%s %s stage", at, words));
	at = s2vt_lstm(n, "lstm2", at, size->hidden);
	at = pd_network_layer(n, "linear", "classifier", at, "{s:I, s:{s:s}}", "out_features",
			      (json_int_t)size->vocabulary, "init", "weight", S2VT_BOUND);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s labels", at),
			 "{s:i}", "ignore_index", -1);
	return 0;
}

const struct pd_family pd_family_gnmt = {
	"gnmt", "LSTMs that translate", (const struct pd_preset[]){
		{ "gnmt-8", "layers=4 hidden=1024 vocabulary=32320 sequence=50 dropout=0.2" },
		{ "gnmt-16", "layers=8" }, { NULL } }, build_gnmt
};
const struct pd_family pd_family_awd = {
	"awd-lm", "a language model of LSTMs", (const struct pd_preset[]){
		{ "awd-lm", "layers=3 hidden=1150 embedding=400 vocabulary=10000 sequence=70 lanes=20 "
		  "untied=false dropout=0.4 alpha=2 beta=1" },
		{ "awd-lm-6", "layers=6 hidden=1600 lanes=80" }, { NULL } }, build_awd
};
const struct pd_family pd_family_s2vt = {
	"s2vt", "LSTMs that describe a video", (const struct pd_preset[]){
		{ "s2vt", "hidden=1000 embedding=500 features=4096 vocabulary=46168 sequence=80" },
		{ NULL } }, build_s2vt
};
