/* SPDX-License-Identifier: Apache-2.0 */
/* A device by its data sheet: the document pd-device(5). */
#pragma once

#include "base/rows.h"
#include "model/dtype.h"

#define PD_TILES 8

/* What part of a data sheet's figures kernels reach. */
struct pd_efficiency {
	double products, memory, attention;
	double winograd;                /* of products of convolutions by Winograd's algorithm; 0: it has none */
};

/* From one device to others of its server. */
struct pd_sheet_link {
	int64_t bandwidth_bytes_per_s, latency_ns;      /* bandwidth 0: none */
	double efficiency;
};

struct pd_sheet {
	char *name, *kind;
	int64_t memory_bytes;
	double products_per_s[PD_DTYPES];       /* multiplications and additions of products; 0: not in this type */
	double tf32_per_s;                      /* the same of f32 rounded to TF32; 0: none */
	double bandwidth_bytes_per_s;           /* of its memory */
	int64_t kernel_ns;                      /* from one kernel to the next, whatever it does */
	int64_t units;                          /* that compute tiles side by side; 0: tiles do not matter */
	int tile_count, tiles[PD_TILES][2];     /* of an output: rows and columns */
	double fill;                            /* what a tile's beginning and end take, in steps of its sum */
	struct pd_efficiency efficiency;
	struct pd_sheet_link link;
	double overlap_cost;                    /* what a transfer takes from computing beside it, of its time */
	bool unfused;                           /* attention makes its scores in memory */
	bool drops_apart;                       /* forward of dropout is a kernel of its own */
	double update_bytes;                    /* that an update moves for each parameter, but its 16-bit copy */
	double spread;                          /* how far times may be off, as a part of them */
	json_t *json;                           /* the document; owned */
};

/*
 * Reads a device: a file if `what` has a '/' or ends with ".json", else NAME.json of the folder of devices, which
 * PD_DEVICES names, or the one that was installed.  Errors count as input.
 */
struct pd_sheet *pd_sheet_read(const char *what, struct pd_error *err);
/* Reads one that is part of another document, which it keeps alive. */
extern const struct pd_key_row pd_sheet_rows[];
struct pd_sheet *pd_sheet_parse_at(const struct pd_place *place, struct pd_error *err);
/*
 * Makes one for which there is no data sheet, with rates to be fitted (pd_estimate_fit) and no tiles; a processor
 * has convolutions by Winograd's algorithm.
 */
struct pd_sheet *pd_sheet_of(const char *name, const char *kind, int64_t memory_bytes, struct pd_error *err);
void pd_sheet_free(struct pd_sheet *sheet);
/* Tells whether `what` names a device: one of the folder's, or a file. */
bool pd_sheet_known(const char *what);
/* Returns where the folder of devices should be and is not, else NULL. */
const char *pd_sheet_folder_missing(void);
/* Writes which of the folder's devices is like a word, for a message (base/names.h). */
const char *pd_sheet_say(const char *word, char text[PD_MEANT_TEXT]);
/* Makes a document of the device with other efficiencies, kernel_ns and spread, fitted to a profile's device. */
json_t *pd_sheet_json(const struct pd_sheet *sheet, const char *fitted_to);
