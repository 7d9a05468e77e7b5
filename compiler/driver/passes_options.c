#include "driver/passes_options.h"

#include <stdio.h>

#include "aot/description.h"
#include "passes/incremental.h"

PassOptions passes_options(const Options *options) {
  const OptionValues *only = &options->values[OPTION_ONLY], *disabled = &options->values[OPTION_DISABLE];
  return (PassOptions){.level = option_is(options, OPTION_OPTIMIZE, "2", "2") ? 2 : 0,
                       .only = only->texts.items,
                       .n_only = (uint32_t)only->texts.n,
                       .disabled = disabled->texts.items,
                       .n_disabled = (uint32_t)disabled->texts.n,
                       .stop_after = option_text(options, OPTION_STOP_AFTER, NULL),
                       .print_after = option_text(options, OPTION_PRINT_AFTER, NULL),
                       .print_to = stdout,
                       .time_passes = option_given(options, OPTION_TIME_PASSES),
                       .dump_dir = option_text(options, OPTION_DUMP_DIR, NULL)};
}

bool report_passes(Session *session, Graph *graph, const PassLog *log) {
  const Options *options = &session->options;
  if (option_given(options, OPTION_REPORT)) {
    StrBuf report = strbuf_new(session->arena);
    passes_report(&report, graph, log);
    session_print(&report);
  }
  bool all_there = true;
  const OptionValues *required = &options->values[OPTION_REQUIRE_FUSION];
  for (size_t i = 0; i < required->texts.n; i++)
    all_there = passes_require(&session->diag, log, required->texts.items[i]) && all_there;
  return all_there;
}

bool run_passes(Session *session, Graph *graph) {
  PassOptions options = session->library ? session->model->passes : passes_options(&session->options);
  PassLog log = {.arena = session->arena};
  bool is_reported = option_given(&session->options, OPTION_REPORT) && graph->generate_input;
  if (is_reported) incremental_derive(session->arena, &session->diag, graph, &log); /* what is kept, or why nothing is */
  return passes_run(graph, &session->diag, &options, &log) && report_passes(session, graph, &log);
}
