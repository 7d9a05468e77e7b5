/* tfmc opt: passes over a graph in text form. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "driver/commands/commands.h"
#include "driver/passes_options.h"
#include "weights/files.h"

enum { MAX_GRAPH_BYTES = 256 << 20 };

static bool read_stdin(Session *session, StrBuf *text) {
  char piece[4096];
  size_t n;
  while ((n = fread(piece, 1, sizeof piece, stdin)) > 0 && text->length <= MAX_GRAPH_BYTES)
    strbuf_add_n(text, piece, n);
  if (ferror(stdin)) diag_error_at(&session->diag, "<stdin>", DIAG_FILE, "cannot read: %s", strerror(errno));
  return !ferror(stdin);
}

static bool read_file(Session *session, const char *path, StrBuf *text) {
  InFile file;
  if (!in_file_open(&file, &session->diag, path, true)) return false;
  size_t size = file.size <= MAX_GRAPH_BYTES ? (size_t)file.size : MAX_GRAPH_BYTES + 1u;
  char *bytes = arena_alloc(session->arena, size);
  bool read = in_file_read(&file, &session->diag, 0, bytes, size);
  strbuf_add_n(text, bytes, size);
  in_file_close(&file);
  return read;
}

static Graph *read_graph(Session *session) {
  const char *path = session->options.files.items[0];
  bool from_stdin = strcmp(path, "-") == 0;
  StrBuf text = strbuf_new(session->arena);
  if (from_stdin ? !read_stdin(session, &text) : !read_file(session, path, &text)) return NULL;
  if (text.length > MAX_GRAPH_BYTES) {
    diag_error_at(&session->diag, path, DIAG_GRAPH_SYNTAX, "the text is larger than 256 MiB");
    return NULL;
  }
  Source *source = source_new(session->arena, from_stdin ? "<stdin>" : path, text.text, (uint32_t)text.length);
  return graph_read(session->arena, &session->diag, source);
}

void command_opt(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  Graph *graph = read_graph(session);
  if (!graph || !graph_verify(graph, &session->diag) || !run_passes(session, graph)) return;
  StrBuf text = strbuf_new(session->arena);
  graph_print(&text, graph);
  session_write(session, &text);
}
