/* The folder of a training run: which run its checkpoints are of, going on from the newest, writing the next.
 *
 * In: a request, and the folder that it names. Out: the state that a run begins with, locked against other processes;
 * checkpoints and weights, complete or not at all. Refused: a folder that another process uses, one that holds a run
 * which nobody wants to go on with, checkpoints of another run. Private to course.c. */
#ifndef TFM_TRAIN_COURSE_FOLDER_H
#define TFM_TRAIN_COURSE_FOLDER_H

#include "tfm/abi/checkpoint.h"
#include "train/course_request.h"
#include "train/epochs.h"
#include "train/journal.h"

typedef struct Course {
  const CourseRequest *request;
  Journal *journal;
  int lock; /* the folder, open; -1: not */
  tfm_state_head head;
  uint32_t n_results;
  EpochsRequest epochs;
  Arena *epoch; /* of the order */
  Order *order;
  int64_t ordered; /* the epoch of the order; -1: none */
  Record since;    /* tokens, items and padding since the newest line of the log */
  double *results, *judged;
  EvalInputs *valid; /* all batches of --valid */
  uint32_t n_valid;
  int64_t saved; /* the step of the newest checkpoint; -1: none of this process */
  int64_t begun; /* the step that the run went on from */
  bool ended_epoch, has_stopped, cannot_write;
} Course;

tfm_state_head course_first_head(const CourseRequest *request);
/* Locks the folder, which is made if it is not there. */
bool course_open_folder(Course *c);
/* Goes on from the latest checkpoint, or begins in a folder without one. */
bool course_find_beginning(Course *c);
/* The weights that people take: the best by validation, or the newest. */
bool course_write_weights(Course *c);
/* A checkpoint of the step that the run is at, unless there is one. */
bool course_save(Course *c);
/* Reports what a function of the runtime said; false. */
bool course_fails(const Course *c, DiagCode code, const tfm_error *error);
static inline Diag *course_diag(const Course *c) { return c->request->diag; }

#endif
