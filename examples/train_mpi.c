/* Several processes train one model together, through MPI and a library that trains: the model of docs/training.md.
 *
 *   tfmc compile --training tagger.tfm -o libtagger.so
 *   mpicc -O2 train_mpi.c -L. -ltagger -lm -Wl,-rpath,'$ORIGIN' -o train_mpi
 *   mpirun -n 2 ./train_mpi            1, 2 and 4 processes end with the same weights, to the bit
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "tagger.h"

enum { SHARDS = 4, ITEMS = 8, TIME = 6, STEPS = 20 };

static tfm_status exchange(void *user, int32_t peer, const void *out, void *in, int64_t bytes) {
  const MPI_Count most = 1 << 30; /* MPI counts in int */
  (void)user;
  for (int64_t at = 0; at < bytes; at += most) {
    const int n = (int)(bytes - at < most ? bytes - at : most);
    if (MPI_Sendrecv((const char *)out + at, n, MPI_BYTE, peer, 0, (char *)in + at, n, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE))
      return TFM_E_ENV;
  }
  return TFM_OK;
}

/* Item i of a step is the same whoever computes it. */
static void make_batch(int step, int32_t ids[ITEMS][TIME], int32_t labels[ITEMS][TIME]) {
  uint32_t state = 12345u + (uint32_t)step;
  for (int i = 0; i < ITEMS * TIME; i++) {
    state = state * 1664525u + 1013904223u;
    ids[0][i] = 1 + (int32_t)((state >> 16) % 99);
    labels[0][i] = ids[0][i] % 7;
  }
}

/* A hash (FNV-1a) of the bytes of all weights. */
static uint64_t hash_of(tagger_trainer *trainer) {
  uint64_t hash = 14695981039346656037u;
  const char *path;
  for (int64_t i = 0; (path = tagger_trainer_path(trainer, i)); i++) {
    int64_t dims[8], bytes = sizeof(float);
    int32_t rank;
    float *data;
    if (tagger_trainer_tensor(trainer, path, TFM_TENSOR_WEIGHT, &data, dims, &rank, NULL)) return 0;
    for (int32_t axis = 0; axis < rank; axis++) bytes *= dims[axis];
    for (int64_t k = 0; k < bytes; k++) hash = (hash ^ ((const unsigned char *)data)[k]) * 1099511628211u;
  }
  return hash;
}

int main(int argc, char **argv) {
  static int32_t ids[ITEMS][TIME], labels[ITEMS][TIME];
  tagger_objective_args parts[SHARDS];
  tagger_trainer *trainer;
  tfm_step_result result = {.struct_size = sizeof result};
  tfm_error error;
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const tfm_trainer_options options = {.struct_size = sizeof options, .seed = 1, .threads = 1, .rank = rank,
                                       .ranks = ranks, .shards = SHARDS, .exchange = exchange};
  int status = tagger_trainer_new(NULL, &options, &trainer, &error);
  const int n = SHARDS / ranks, each = ITEMS / SHARDS, first = rank * (ITEMS / ranks);
  for (int step = 0; step < STEPS && !status; step++) {
    make_batch(step, ids, labels);
    for (int i = 0; i < n; i++)
      parts[i] = (tagger_objective_args){.struct_size = sizeof parts[i], .batch = each, .time = TIME,
                                         .ids = ids[first + i * each], .labels = labels[first + i * each]};
    status = tagger_trainer_step(trainer, parts, n, first, &result, &error);
  }
  if (status) fprintf(stderr, "rank %d: %s\n", rank, error.message);
  else if (rank == 0)
    printf("step %lld: loss %.17g, norm %.17g, weights %016llx\n", (long long)result.step, result.loss, result.norm,
           (unsigned long long)hash_of(trainer));
  tagger_trainer_free(trainer);
  if (status) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
