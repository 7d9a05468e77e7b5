#include "driver/passes_options.h"

#include <stdio.h>

#include "aot/model_text.h"

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

bool run_passes(Session *session, Graph *graph) {
  const Options *options = &session->options;
  PassOptions pass_options = session->library ? session->model->passes : passes_options(options);
  PassLog log = {.arena = session->arena};
  if (!passes_run(graph, &session->diag, &pass_options, &log)) return false;
  if (option_given(options, OPTION_REPORT)) {
    StrBuf report = strbuf_new(session->arena);
    passes_report(&report, graph, &log);
    session_print(&report);
  }
  bool all_there = true;
  const OptionValues *required = &options->values[OPTION_REQUIRE_FUSION];
  for (size_t i = 0; i < required->texts.n; i++)
    all_there = passes_require(&session->diag, &log, required->texts.items[i]) && all_there;
  return all_there;
}
