/* tfm/abi/program.h: a compiled model as the runtime sees it. C99.
 *
 * Plain constant structs, the same whether the compiler builds them in memory (JIT) or emits them into a library (AOT).
 * The runtime trusts them: only the version is checked, which rises with each change. Pointers are to constant data.
 *
 * Steps are executed in order, with a barrier after each; all threads work on each step. A step with `prepare` set
 * depends on sizes alone: it is executed when the sizes change, and its results stay valid for the runs that follow.
 *
 * Kernels. Code is generated for the inner blocks only (abi/kernels.h); the loops around them, the split over threads
 * and all addresses are C (runtime/steps). Strides count elements unless the text says bytes. */
#ifndef TFM_PROGRAM_H
#define TFM_PROGRAM_H

#include <stdint.h>

#include "tfm/abi/gradient_steps.h"
#include "tfm/abi/kernels.h"
#include "tfm/abi/operand.h"
#include "tfm/abi/slot.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_PROGRAM_VERSION = 36 };
typedef struct tfm_tensor_info { /* an input or output of the model */
  TFM_SLOT(const char *name);
  uint8_t dtype, rank, has_default; /* has_default: an input that a run may leave out (data NULL) */
  uint8_t goes_on;   /* an output that runs which go on (RunState) add to */
  tfm_size dims[TFM_MAX_RANK];
  uint32_t fill;     /* the bits of each element of an input that is left out; of a bool the lowest */
  uint32_t stand_in; /* 1 + the buffer that holds an output in runs that do not want it; 0: no step reads it */
  TFM_SLOT(const char *shape); /* for messages: "f32[batch, time, 64]" */
} tfm_tensor_info;

// ---- checks of a run, made before anything is computed ----

typedef enum tfm_test { TFM_EQ, TFM_NE, TFM_LT, TFM_GT, TFM_LE, TFM_GE, TFM_AND, TFM_OR, TFM_NOT } tfm_test;

typedef struct tfm_condition { /* postfix: comparisons push, AND, OR, NOT combine */
  uint8_t test;
  tfm_size left, right;
} tfm_condition;

typedef struct tfm_message_part {
  TFM_SLOT(const char *text); /* never NULL */
  tfm_size value;   /* printed after the text unless TFM_NONE */
} tfm_message_part;

typedef struct tfm_check { /* the sizes must satisfy the conditions; else the message is put together from the parts */
  uint32_t first_condition, n_conditions;
  uint32_t first_part, n_parts;
  TFM_SLOT(const char *place); /* "model.tfm:12:5" or NULL */
} tfm_check;

typedef struct tfm_id_limit { /* every element of an i32 input must lie in [least, limit) */
  uint32_t input;
  tfm_size limit;
  TFM_SLOT(const char *place);
  int32_t least;                /* 0: of ids */
  uint32_t first_part, n_parts; /* the end of the message: why; none for ids */
} tfm_id_limit;

typedef struct tfm_fault_place { /* a division of integers of a step; in the order they are computed */
  uint32_t step, is_refusal; /* 1: `place` is what is said of the one before, in place of a division by zero */
  TFM_SLOT(const char *place); /* "model.tfm:12:5" */
} tfm_fault_place;

// ---- caches: results of earlier positions that a step of decoding reads ----

/* Caches live in pages of TFM_CACHE_PAGE positions. Each row of a step has a list of pages for what it wrote itself and
 * one for the source that it reads (of_encoder; rows of one source share it). A page holds every cache of its kind of
 * list, one behind the other: `columns` numbers for each position, KEYS as [columns][TFM_CACHE_PAGE], VALUES as
 * [TFM_CACHE_PAGE][columns]. Positions that are not written yet hold numbers without a meaning, which may be read.
 * Of form INT8 a head's columns are rounded together when they are written, and lie as tfm_head_floats says. */
typedef enum tfm_cache_kind { TFM_CACHE_KEYS, TFM_CACHE_VALUES } tfm_cache_kind;

typedef struct tfm_cache {
  uint8_t kind, of_encoder;
  uint8_t form;     /* tfm_form of the numbers in pages, F32 or INT8; attention computes in a form of its own */
  uint16_t head;    /* a divisor of columns; F32: 1 */
  uint16_t stride;  /* floats of a page from head to head */
  uint32_t number;  /* n of the step graph's role `cache n`, or `encoded n` (of_encoder) */
  uint32_t round;   /* the kernel that makes numbers of `head` columns; TFM_NONE: they are copied */
  int64_t columns;
  int64_t offset;   /* floats from the beginning of a page; a multiple of 16 */
} tfm_cache;

static inline int64_t tfm_cache_floats(const tfm_cache *cache) { /* of a page; a sixteenth of them for a position */
  return cache->columns / cache->head * tfm_head_floats(cache->form, cache->kind == TFM_CACHE_KEYS, cache->head);
}

// ---- steps ----

typedef enum tfm_step_kind {
#define STEP(KIND, ...) TFM_STEP_##KIND,
#include "tfm/abi/steps.def"
} tfm_step_kind;

enum {
#define STEP(KIND, ...) +1
  TFM_STEP_KINDS = 0
#include "tfm/abi/steps.def"
};

typedef struct tfm_step {
  uint8_t kind, prepare;
  uint8_t joined;   /* cut over threads as the step before it, of whose result each row needs the same row alone: each
                       thread may begin it when it has done its own share of that one */
  uint32_t index;   /* in the program's array of that kind */
  uint64_t serves;  /* bit min(i, 63): output i needs this step; runs that want none of them skip it; 0: none do */
  tfm_size work;    /* estimate of the arithmetic and memory work, in units of about a nanosecond of one core */
  TFM_SLOT(const char *name); /* for profiles and dumps: operation and module path */
} tfm_step;

/* Which rows of a step's result are live: those where the mask, a bool per row, is `where`. The others are not
 * computed, and what they hold has no meaning. A step has its number in the program, counted from 1; 0: all rows are
 * live. */
typedef struct tfm_live_rows {
  uint8_t where;
  uint8_t zeroed; /* the others become 0, because a step reads them whose result they must not spoil */
  tfm_size item;  /* of a gemm: only those before a live row of the same item, which has so many rows; 0: all */
  tfm_operand mask; /* attention: strides[]: batch axes, t; else all axes but the last, as one, without gaps */
} tfm_live_rows;

/* Operands [first_operand, + n_operands) over axes dims[0..rank): the last is the column axis, the one before it the
 * row axis (rank >= 2; axes of 1 are put in front). Operand 0 is the result. `reduce`: 0 pointwise, 1 along columns,
 * 2 along rows (the row axis is then never split). A reduction along columns may write whole rows (softmax, norms). */
typedef struct tfm_row_step {
  uint32_t kernel;
  uint8_t rank, reduce, n_operands, second; /* second: the operand that is a second result; 0: there is none */
  uint32_t first_operand;
  tfm_size dims[TFM_MAX_RANK];
  uint32_t live; /* tfm_live_rows; 0 if reduce is 2 */
} tfm_row_step;

/* c = epilogue(a wT): rows of a (all axes but the last, as one axis with stride a.strides[0]) times packed weights. n
 * is cut into panels of `panel` columns, each [k][panel], zero-padded; a tile walks `width` columns of one, a divisor
 * of `panel`, with rows of b `panel` apart. Panels depend on n alone, so that programs for several instruction sets
 * share the packed weights. The epilogue is a pointwise row kernel in place on c, its operand 0, over axes
 * dims[0..rank) (last: n). */
typedef struct tfm_gemm_step {
  uint32_t tiles[TFM_MAX_TILE_ROWS + 1]; /* kernel by number of rows; TFM_NONE beyond tile_rows; [0]: up to how many
                                            rows they take all columns of a panel, not `width` */
  uint8_t tile_rows, width, panel, form, rank, n_operands; /* form: tfm_form of the panels */
  uint8_t a_bytes, is_matrix; /* of one k in a row of a: 4, of whole numbers fewer; tiles take tile registers */
  uint32_t weight;
  tfm_size rows;
  int64_t k, n;
  tfm_operand a, c; /* strides[0]: between rows; columns are contiguous */
  uint32_t two_panels; /* the kernel of one row that takes two panels, the second one at `next`; or TFM_NONE */
  uint32_t epilogue;   /* kernel or TFM_NONE */
  uint32_t first_operand;
  tfm_size dims[TFM_MAX_RANK];
  uint32_t live; /* tfm_live_rows */
} tfm_gemm_step;

/* The rows of x, dims[0] of them with stride x.strides[0], as rows of whole numbers (tfm_quantize_kernel) that gemms
 * read: c.strides[0] floats apart. */
typedef struct tfm_quantize_step {
  uint32_t kernel;
  uint8_t rank; /* 1 */
  int64_t k;
  tfm_operand x, c;
  tfm_size dims[TFM_MAX_RANK];
  uint32_t live; /* tfm_live_rows; what the others hold is never read, whether or not it is `zeroed` */
} tfm_quantize_step;

/* c[..., m, n] = x[..., m, k] y[..., k, n] over batch axes dims[0..rank-2); dims[rank-2] is m, dims[rank-1] is n.
 * x.strides: batch axes, m, k; y.strides: batch axes, k, n; c: batch axes, m, n (n contiguous). Both operands are
 * packed into scratch: x with row stride TFM_STRIP_STRIDE in blocks of TFM_KEY_BLOCK k (unless x_stays: the tiles have
 * its own strides), y in panels. Epilogue as in a gemm. With `direct` neither is packed. */
typedef enum tfm_direct {
  TFM_DIRECT_NONE, TFM_DIRECT_COLUMNS, /* columns side by side, for n up to direct_columns; tiles are for other n */
  TFM_DIRECT_ROWS, TFM_DIRECT_LINES, /* rows side by side; x is one row, and whole lines of y follow one another */
  TFM_DIRECT_TURNED,  /* the same with y for x and x for y: x is one row, and its result the one column */
  TFM_DIRECT_ONE_ROW  /* x is one row, the columns of y are neighbours, and sums are f64: without a kernel */
} tfm_direct;

typedef struct tfm_matmul_step {
  uint32_t tiles[TFM_MAX_TILE_ROWS + 1];
  uint32_t pack, direct_kernel;
  uint8_t tile_rows, width, rank, n_operands, x_stays, y_stays; /* y_stays: y has whole panels; no pack */
  uint8_t direct, direct_columns; /* tfm_direct; direct_columns: of columns side by side */
  uint8_t in_order, live_steps, adds_chains; /* tfm_order; tfm_live_steps; the step adds up chains of tiles */
  tfm_size k;
  tfm_operand x, y, c;
  uint32_t epilogue, first_operand, live; /* tfm_live_rows: of rows of x and c, or live_steps; not direct then */
  tfm_size dims[TFM_MAX_RANK];
} tfm_matmul_step;

/* softmax(score(q kT)) v over batch axes dims[0..rank-2); dims[rank-2] is t (queries), dims[rank-1] is s (keys).
 * q.strides: batch axes, t (contiguous in h); k: batch axes, s, h; v: batch axes, s (contiguous in e);
 * c: batch axes, t (contiguous in e); weights (has_weights): batch axes, t, s.
 * score: a pointwise row kernel in place on a strip of rows x keys whose operand 0 is the strip (a buffer with index
 * TFM_NONE); its operands [first_operand + 1, + n_operands - 1) have strides over all axes (t and s too). */
typedef struct tfm_attention_step {
  uint32_t qk_tiles[TFM_MAX_TILE_ROWS + 1]; /* a = q in place, b = packed keys, or a page of them */
  uint32_t pv_tiles[TFM_MAX_TILE_ROWS + 1]; /* a = strip, b = v in place (v_packed: packed), or in a page */
  uint32_t pv_exact_tiles[TFM_MAX_TILE_ROWS + 1]; /* for v with infinities or NaN: a weight of 0 contributes 0 */
  uint32_t pack_keys, pack_values; /* pack_values TFM_NONE unless v_packed */
  uint32_t score;                  /* TFM_NONE: the scores as they are */
  uint32_t softmax, scale_rows;    /* scale_rows: row kernel, result = operand 1 * operand 2 (one number per row) */
  uint32_t finite;
  /* form INT8: rows of q, k and v become whole numbers by these kernels, k and v as bytes, which the runtime puts into
   * panels; `weigh` makes rows of the softmax's weights. Numbers of q and of weights have a_bytes. k is contiguous in
   * h, and pv tiles take values as signed bytes. None of pv_exact_tiles, pack_keys, pack_values, finite is needed. */
  uint32_t whole_q, whole_k, whole_v, weigh;
  uint8_t form, a_bytes; /* tfm_form: F32 or INT8 */
  uint8_t tile_rows, qk_width, pv_width, v_packed;
  uint8_t rank, n_operands, has_weights;
  uint8_t causal;      /* every key after the query's own position, its row + causal_offset, is -inf in `score` */
  /* padding: a bool operand (1...) that does not depend on t: keys where it is padding_true are -inf; 0: none */
  uint8_t padding, padding_true;
  uint8_t padding_only; /* `score` does nothing else */
  /* The caches of keys and values; TFM_NONE both: k and v are in memory. With caches dims[0] counts the rows of the
   * step, and k and v are no operands in memory (space SIZE, index 0): their offset and strides, but those of dims[0]
   * and of s, count columns of the cache; the h (or e) columns of a head are neighbours. qk_width is TFM_CACHE_PAGE,
   * pv tiles have the cache's columns as row stride, v_packed is 0. Caches of form INT8 serve steps of form INT8: they
   * count heads; qk tiles, whose width divides TFM_CACHE_PAGE, walk panels of as many columns, pv tiles those of
   * tfm_value_columns. */
  uint32_t k_cache, v_cache;
  tfm_size causal_offset;
  int64_t h, e;
  tfm_operand q, k, v, c, weights;
  uint32_t first_operand, keys_in_place; /* keys_in_place: a direct kernel, for few scores; TFM_NONE: always packed */
  tfm_size dims[TFM_MAX_RANK];
  uint32_t live; /* tfm_live_rows of queries; 0 with has_weights or caches */
} tfm_attention_step;

/* Appends x to a cache. Of its axes dims[0..rank), dims[0] are the rows of the step, dims[1] the new positions, and the
 * others, in order, the columns. Each row writes to its own pages, at the positions from `past` on. */
typedef struct tfm_append_step {
  uint32_t cache;
  uint8_t rank;
  tfm_size past;
  tfm_operand x;
  tfm_size dims[TFM_MAX_RANK];
} tfm_append_step;

/* c[..., d] = sines and cosines of positions[...] base^(-2 i / d), for each angle i; dims are of positions. */
typedef struct tfm_table_step {
  uint8_t rotary;      /* 0: sinusoid, 1: cosines, then sines, of rotary's angles, d = 2 * (h / 2) */
  uint8_t interleaved; /* sinusoid only */
  uint8_t rank;
  int64_t d;
  double base;
  tfm_operand positions, c; /* positions i32 or f32; c: strides of the axes, columns contiguous */
  tfm_size dims[TFM_MAX_RANK];
} tfm_table_step;

/* What the runtime computes itself, line by line along the last axis: what cannot be done column beside column, or is
 * not worth a kernel. x and y are f32 but where it says otherwise. */
typedef enum tfm_along {
  TFM_ALONG_CUMSUM, /* running sums of x, f32 or i32, one addition after the other */
  TFM_ALONG_TOPK,   /* i32: the indices of the greatest of x, the greatest first, of equal ones the lowest; NaN first */
  TFM_ALONG_TAKE,   /* the elements of x, of any type, at the places y (i32), which were checked before */
  TFM_ALONG_POWER,  /* x to the y, computed in double */
  TFM_ALONG_PLACES, /* i32: the indices of the true elements of x, bool, in order, then those of the false ones */
  TFM_ALONG_BEFORE, /* i32: how many true elements of x, bool, stand before each */
  TFM_ALONG_SUM, TFM_ALONG_MAX, TFM_ALONG_MIN, /* of x, i32: one result a line */
  TFM_ALONG_LOOK_UP, /* rows of a packed table x, of n numbers each, that y (i32) names: ids were checked before */
  TFM_ALONG_TRIANGLE, /* running sums of x with the bits of a product with ones on and below the diagonal, 0 above */
  TFM_ALONG_SCATTER /* n rows of x are added to those of c that y names: see accumulate */
} tfm_along;

/* The rows of c when a SCATTER begins to add to them: what they are; 0; 0 unless the run goes on. */
typedef enum tfm_accumulate { TFM_ACCUMULATE_ONTO, TFM_ACCUMULATE_ANEW, TFM_ACCUMULATE_GOES_ON } tfm_accumulate;
typedef struct tfm_along_step {
  uint8_t what, rank; /* tfm_along; 1 or more */
  uint8_t form, panel; /* LOOK_UP: as of a gemm's weight; rows of whole numbers are rotated back */
  uint8_t accumulate;  /* SCATTER: tfm_accumulate */
  tfm_operand x, y, c; /* y: TAKE and POWER; else the same as x */
  tfm_size n;          /* elements of x along the last axis */
  tfm_size dims[TFM_MAX_RANK]; /* of c; the last one is the axis */
} tfm_along_step;

/* Linear attention of q, k [..., t, n] and v [..., t, d]: dims are of c [..., t, d], and strides of all operands are
 * along them, but the last of q, k and decay, which is along n. initial and last, the states [..., n, d] before the
 * first step and behind the last one, have n in place of t. decay, beta and initial are v where there is none. */
typedef struct tfm_state_step {
  uint32_t kernel, one; /* tfm_state_kernel: of any steps; of one step that goes on (has_initial), else TFM_NONE */
  uint8_t rank, has_decay, beta; /* tfm_beta */
  uint8_t has_initial, has_last, block, one_block; /* block, one_block: columns that the kernels take */
  int64_t n;
  tfm_operand q, k, v, decay, beta_values, initial, c, last;
  tfm_size dims[TFM_MAX_RANK];
} tfm_state_step;

typedef struct tfm_ids_step { /* every element of `ids` must lie in [0, limit); else the run fails */
  uint8_t rank;
  tfm_operand ids;
  tfm_size limit;
  tfm_size dims[TFM_MAX_RANK];
  TFM_SLOT(const char *place);
} tfm_ids_step;
// ---- the program ----

typedef struct tfm_drivers tfm_drivers; /* drivers.h */
typedef struct tfm_row_chain tfm_row_chain;

typedef struct tfm_program {
  uint32_t version;  /* TFM_PROGRAM_VERSION */
  uint32_t features; /* that the code needs (abi/cpu.h), bits of its family */
  TFM_SLOT(const char *name);
  TFM_SLOT(const char *isa); /* what the code was generated for, for people: "x86-64-v3" */
  uint32_t n_symbols, n_polynomials, n_inputs, n_outputs, n_checks, n_id_limits, n_weights, n_buffers, n_kernels,
      n_steps, n_operands, n_live, n_floors, n_caches, n_row_chains, n_fault_places;
  uint8_t family; /* tfm_family */
  TFM_SLOT(const char *const *symbols); /* names of the run-time sizes */
  TFM_SLOT(const tfm_term *terms);
  TFM_SLOT(const tfm_polynomial *polynomials);
  TFM_SLOT(const tfm_floor *floors);
  TFM_SLOT(const tfm_tensor_info *inputs);
  TFM_SLOT(const tfm_tensor_info *outputs);
  TFM_SLOT(const tfm_check *checks);
  TFM_SLOT(const tfm_condition *conditions);
  TFM_SLOT(const tfm_message_part *parts);
  TFM_SLOT(const tfm_id_limit *id_limits);
  TFM_SLOT(const tfm_fault_place *fault_places); /* in the order of steps; none where no place is known */
  TFM_SLOT(const tfm_weight *weights);
  uint64_t weights_bytes;
  TFM_SLOT(const tfm_buffer *buffers);
  TFM_SLOT(void *const *kernels); /* addresses of generated functions */
  TFM_SLOT(const tfm_step *steps);
  TFM_SLOT(const tfm_operand *operands);
  TFM_SLOT(const tfm_live_rows *live);
  TFM_SLOT(const tfm_row_chain *row_chains); /* in order */
#define STEP(KIND, name, array, ...) TFM_SLOT(const tfm_##name##_step *array);
#include "tfm/abi/steps.def"
  TFM_SLOT(const tfm_cache *caches);
  int64_t own_page_floats, encoder_page_floats; /* sizes of the two kinds of pages */
  TFM_SLOT(const tfm_drivers *drivers); /* those that its steps need, and perhaps others */
} tfm_program;

// ---- decoding ----

/* An input of the step program that is neither the decoder input nor in a cache's pages. */
typedef enum tfm_first_value { TFM_FIRST_NOTHING, TFM_FIRST_ZERO, TFM_FIRST_MINUS_ZERO } tfm_first_value;
typedef struct tfm_step_input {
  uint8_t is_cache;     /* 1: a cache that is a tensor, or a state: output `number` of the step is its next value */
  uint8_t first;        /* tfm_first_value: what all elements of a state are before the first token; else NOTHING */
  uint32_t number;      /* is_cache 0: the output of the encoder program that the input is */
  uint32_t batch_axis;  /* the axis whose dim the number of rows divides; TFM_NONE: the same for all rows */
  uint32_t past_axis;   /* is_cache: the axis whose dim is `past`; TFM_NONE: it is a state */
} tfm_step_input;

/* The incremental form of a generative model. `encoder` computes, once for each batch of sources, all that does not
 * depend on the decoder input; `step` takes the `fresh` new tokens of some rows and gives the logits after the last
 * `kept` of them. All rows of one run of `step` have the same number of earlier positions, `past`. */
typedef struct tfm_decoding {
  TFM_SLOT(const tfm_program *encoder); /* NULL: everything depends on the decoder input */
  TFM_SLOT(const tfm_program *step);
  uint32_t decoder_input;             /* the step's input with the new tokens, i32 [rows, fresh] */
  TFM_SLOT(const tfm_step_input *inputs); /* [n_inputs of the step]; the one of the decoder input is not read */
  uint32_t past, fresh, kept, rows; /* the step's run-time sizes of these meanings, by number; rows TFM_NONE: one row */
  uint32_t encoder_rows;  /* the encoder's run-time size that counts the sources; TFM_NONE: there is one source */
  /* [n_symbols of the step]: the encoder's size of the same name; TFM_NONE: one of the above */
  TFM_SLOT(const uint32_t *sizes);
  uint32_t logits;        /* output of the step, by number: f32 [rows, kept, vocab] */
  uint32_t logsumexp;     /* output f32 [rows, kept]: logsumexp of the logits; TFM_NONE: there is none */
  int64_t vocab;
  /* [n_caches of the step]: the encoder's output that fills the cache, if of_encoder */
  TFM_SLOT(const uint32_t *cache_encoded);
  /* [n_symbols of the encoder]: 1: each source may have its own; NULL: none is ragged */
  TFM_SLOT(const uint8_t *ragged);
} tfm_decoding;

#ifdef __cplusplus
}
#endif
#endif
