/* SPDX-License-Identifier: Apache-2.0 */
/* Writes ONNX files that tests spell out. */
#pragma once

/*
 * Writes a model of these lines to a file:
 *
 *     input NAME SIZE...         an input of f32; "tokens NAME SIZE...", of i64; a size may be a word
 *     tensor NAME SIZE...        an initializer of f32, whose elements are 0.5
 *     buffer NAME SIZE...        the same, of a module that no update moves; "transient NAME SIZE...", that no
 *                                state_dict has; "constant NAME SIZE...", of no module
 *     output NAME
 *     OP IN,... -> OUT,... KEY=VALUE...
 *
 * OP@MODULE says in which module of PyTorch a node was made; OP@MODULE:ROW, that it is an embedding whose
 * padding is this row.
 *
 * A value is a number, several with commas between them, or a text.  "#[1,2]" as an input is a constant of i64,
 * "#1.5" one of f32; an empty one is left out.
 */
void onnx_write(const char *file, const char *text);
