/* Fuzz target: a session of the language server. Bytes that begin with '!' are what the server reads; others are a text,
 * which is opened and asked about at many places. The server must come to its end, which is that of its input. */
#include <fcntl.h>
#include <jansson.h>
#include <string.h>

#include "base/strbuf.h"
#include "explore/explore.h"
#include "fuzz.h"
#include "lsp/server.h"

static void add_message(StrBuf *out, const char *text) {
  strbuf_printf(out, "Content-Length: %zu\r\n\r\n%s", strlen(text), text);
}

static void add_question(StrBuf *out, const char *method, int line, int character) {
  StrBuf text = strbuf_new(out->arena);
  strbuf_printf(&text,
                "{\"id\":%d,\"method\":\"textDocument/%s\",\"params\":{\"newName\":\"z\",\"textDocument\":{\"uri\":"
                "\"file:///x/y.tfm\"},\"position\":{\"line\":%d,\"character\":%d},\"range\":{\"start\":{\"line\":0,"
                "\"character\":0},\"end\":{\"line\":%d,\"character\":0}}}}",
                line * 1000 + character, method, line, character, line);
  add_message(out, text.text);
}

static void add_text(StrBuf *out, const uint8_t *bytes, size_t size) {
  static const char *const methods[] = {"hover",     "definition",    "references",     "documentHighlight",
                                        "completion", "signatureHelp", "rename",         "codeAction",
                                        "inlayHint", "formatting",    "documentSymbol", "prepareRename"};
  const int n = (int)(sizeof methods / sizeof *methods);
  json_t *text = json_stringn((const char *)bytes, size);
  if (!text) return;
  json_t *opened = json_pack("{s:s, s:{s:{s:s, s:i, s:o}}}", "method", "textDocument/didOpen", "params", "textDocument",
                             "uri", "file:///x/y.tfm", "version", 1, "text", text);
  char *message = json_dumps(opened, JSON_COMPACT);
  if (message) add_message(out, message);
  free(message);
  json_decref(opened);
  for (int i = 0; i < 5 * n; i++) add_question(out, methods[i % n], i * 3 % 17, i * 7 % 41);
  add_question(out, "codeLens", 99, 0); /* once: it makes a plan */
}

static void send_all(int fd, const StrBuf *text) {
  for (size_t at = 0; at < text->length;) {
    const ssize_t put = write(fd, text->text + at, text->length - at);
    if (put <= 0) abort();
    at += (size_t)put;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Arena *arena = arena_create();
  StrBuf session = strbuf_new(arena);
  add_message(&session, "{\"id\":0,\"method\":\"initialize\",\"params\":{\"initializationOptions\":{\"hints\":true}}}");
  if (size > 0 && bytes[0] == '!') strbuf_add_n(&session, (const char *)bytes + 1, size - 1);
  else add_text(&session, bytes, size);
  const int in = memfd_create("session", MFD_CLOEXEC), out = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (in < 0 || out < 0) abort();
  send_all(in, &session);
  lseek(in, 0, SEEK_SET);
  lsp_serve(in, out, "fuzz", explore_line_costs);
  close(in);
  close(out);
  arena_destroy(arena);
  return 0;
}
