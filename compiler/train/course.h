/* Course: a training run from data to trained weights.
 *
 * In: a trainer, data, how long and how often, the folder of the run. Out: the trained weights in the trainer, and in
 * the folder checkpoints (checkpoint.h of the runtime), weights.safetensors, the log and the curve (journal.h). A run
 * that goes on from a checkpoint gives the bits of one that was never stopped: all else is a function of the seed, the
 * step, the epoch and the batch. Refuses a folder that holds another run, a checkpoint that is damaged or of another
 * model, setting, seed or data, and, before the first step, a batch in which no label counts (epochs.h). */
#ifndef TFM_TRAIN_COURSE_H
#define TFM_TRAIN_COURSE_H

#include "train/course_request.h"

/* SIGINT and SIGTERM end the step, and a checkpoint is written; *signal is which it was, else 0. False after an
 * error. */
bool course_run(const CourseRequest *request, int *signal);
/* What the data make: batches, parts, padding. For people. False after an error. */
bool course_describe(StrBuf *out, const CourseRequest *request);

#endif
