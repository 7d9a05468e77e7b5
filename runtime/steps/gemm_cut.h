/* Gemm: how a product with packed weights is cut into units, blocks of rows, tiles and pieces of k.
 *
 * In: a step, the rows of a run. Out: what step_gemm.c walks, whose head has the loops. Nothing depends on it but the
 * time: a row is computed alike in any tile, a column in any panel, and k is cut between chains. Refuses nothing. */
#ifndef TFM_RUNTIME_GEMM_CUT_H
#define TFM_RUNTIME_GEMM_CUT_H

#include "machine/tuning.h"
#include "steps/epilogue.h"
#include "steps/partial_sums.h"

enum {
  UNIT_ROWS = BLOCK_ROWS + 2 * TFM_MAX_TILE_ROWS /* no block has more: its tiles are whole */
};

typedef struct GemmChain { /* steps [begin, end) of k, in so many blocks */
  int64_t begin, end, blocks;
} GemmChain;

struct GemmJob; /* step_gemm.c */
typedef void ChainRunner(const struct GemmJob *job);

typedef struct Gemm {
  const tfm_context *context;
  const tfm_gemm_step *step;
  const float *a;
  const char *weights, *after; /* after: what is read when this step is done */
  float *c;
  int64_t a_stride, c_stride; /* elements */
  int64_t all_rows, rows;     /* rows: those that are live, in a row chain those of the share */
  RowShare share;             /* in a row chain (tfm_row_chain); else zeroes */
  int64_t tiles, panels, blocks, panels_per_group;
  int64_t chains, k_blocks; /* k_blocks: of the first chain, the longest */
  float *waiting; /* results of chains that wait */
  LiveRows live;
  Epilogue epilogue;
  EpilogueCall *prepared; /* its kernel is NULL where no call serves all tiles: see finish_tile of step_gemm.c */
  const GemmConsumer *consumer; /* NULL: results go to c, the whole matrix */
  ChainRunner *run_chains;      /* of several; NULL: k is one chain */
} Gemm;

typedef struct Tile {
  int64_t row, rows, before; /* before: rows of the tiles before it in its block */
  tfm_tile_kernel kernel;
} Tile;

typedef struct Block { /* of rows: the one that a thread works on */
  int64_t number, n;   /* number -1: none yet; n: its tiles */
  LiveCursor cursor;
  int64_t rows;        /* of all tiles */
  int64_t together;    /* steps of k of a piece, at most */
  int64_t lines;       /* of what is read next, those that a tile fetches in a turn */
  int64_t width;       /* columns of a band: of its tiles, or of a panel if they all take the whole of it */
  int64_t k, ahead;    /* steps of k of most calls of a tile; bytes of what is read next that such a call fetches */
  bool in_order;       /* pieces are read as they lie, band after band of each, and the next one is what is fetched */
  Tile tiles[UNIT_ROWS];
} Block;

/* The bytes of the first k rows of a panel. k is a multiple of what lies together (forms.def), or all there
 * are. Not part of each caller, because all libraries have this code. */
int64_t gemm_panel_bytes(const tfm_gemm_step *step, int64_t k);
/* With scales, which are all that columns of no steps have. */
static inline int64_t full_panel_bytes(const tfm_gemm_step *step) {
  return gemm_panel_bytes(step, step->k) + tfm_column_bytes(step->form, 0) * step->panel;
}

/* Rows of whole numbers take less room, and their sums have no order (INT8, INT4), or that of k (MIXED forms): long
 * blocks, one chain. */
static inline bool rows_are_whole(const tfm_gemm_step *step) { return tfm_form_has_whole_rows(step->form); }
static inline int64_t k_block_of(const tfm_gemm_step *step) {
  return rows_are_whole(step) ? WHOLE_K_BLOCK : TFM_K_BLOCK;
}
/* Whether a tile of so many rows takes all columns of a panel at once. */
static inline bool takes_whole_panels(const tfm_gemm_step *step, int64_t rows) { return rows <= step->tiles[0]; }
/* Steps of k in a turn of a tile. */
static inline int64_t turn_of(const tfm_gemm_step *step) { return tfm_form_row_of(step->form)->turn; }
/* The steps of k in a call are a multiple of these. */
static inline int64_t least_steps_of(const tfm_gemm_step *step) { return tfm_form_row_of(step->form)->unit; }
/* Bytes from a column of a panel to the next one. */
static inline int64_t column_bytes_of(const tfm_gemm_step *step) { return tfm_form_row_of(step->form)->lane; }
static inline int64_t chains_of(const tfm_gemm_step *step) {
  return rows_are_whole(step) ? 1 : partial_chains(step->k);
}

static inline bool is_short(const Gemm *gemm) { return gemm->step->k <= SHORT_K; }

/* Sets which rows are computed. `joined`: MOST_JOINED_ROWS bytes for the masks of several runs. A consumer gets whole
 * blocks of rows, so rows that are not live are computed too. */
void gemm_choose_rows(const Walker *walker, const tfm_step *step, Gemm *gemm, char *joined);
GemmChain gemm_chain(const Gemm *gemm, int64_t chain);
void gemm_size_units(Gemm *gemm, int32_t threads);
/* Cuts the tiles of block number `number`, unless they are there: a thread takes unit after unit of one block. */
void gemm_enter_block(const Gemm *gemm, Block *block, int64_t number);
/* Bytes of the next panel for each call of a tile with k steps: an even share, or what it reaches, in whole lines. */
int64_t gemm_bytes_ahead(const tfm_gemm_step *step, const Block *block, int64_t k);

#endif
