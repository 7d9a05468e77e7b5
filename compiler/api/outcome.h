/* The outcome of a request: how the compiler ended, and what it left behind, become a status or the parts. */
#ifndef TFM_API_OUTCOME_H
#define TFM_API_OUTCOME_H

#include "api/child.h"
#include "api/nameless.h"
#include "api/parts.h"

/* Passes the messages on to the caller. On TFM_OK `parts` is mapped, and every range of its header lies within it. */
tfm_status outcome_read(const Request *request, const tfm_compile_options *options, const ChildEnd *end, Mapping *parts,
                        tfm_error *error);

#endif
