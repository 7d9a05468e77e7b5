/* The life of the server, and who answers what. See server.h.
 *
 * Messages that have arrived are taken into a queue before the next one is answered, so that a request which was
 * cancelled meanwhile costs nothing. Messages about texts are made when the queue is empty: while somebody types, only
 * the last text counts. */
#define _POSIX_C_SOURCE 200809L
#include "lsp/server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "lsp/frames.h"
#include "lsp/requests.h"

enum {
  LOOK_FOR_EDITOR = 3000, /* milliseconds between two looks */
  MOST_QUEUED = 4096      /* messages; more wait in the pipe */
};

typedef enum ServerState { STATE_NEW, STATE_RUNNING, STATE_SHUT_DOWN, STATE_ENDED } ServerState;

typedef struct Server {
  Frames frames;
  Documents documents;
  Arena *arena; /* of the queue; reset when that is empty */
  VEC(json_t *) queue;
  size_t first; /* in the queue: those before are answered */
  ServerState state;
  const char *version;
  pid_t editor; /* 0: not known */
  int exit_code;
} Server;

// ---- answers ----

static void end(Server *server, int exit_code) {
  server->state = STATE_ENDED;
  server->exit_code = exit_code;
}

static void send(Server *server, json_t *message) {
  if (message && !frames_write(&server->frames, message)) end(server, 1);
  json_decref(message);
}

static void answer(Server *server, const json_t *id, json_t *result) {
  send(server, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result ? result : json_null()));
}

static void refuse(Server *server, const json_t *id, int code, const char *text) {
  json_t *error = json_pack("{s:i, s:s}", "code", code, "message", text);
  send(server,
       json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id ? json_deep_copy(id) : json_null(), "error", error));
}

static bool send_report(void *context, json_t *params) {
  Server *server = context;
  send(server,
       json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", "textDocument/publishDiagnostics", "params", params));
  return server->state != STATE_ENDED;
}

// ---- the life of the server ----

static bool offers_utf8(const json_t *params) {
  const json_t *general = json_object_get(json_object_get(params, "capabilities"), "general");
  const json_t *encodings = json_object_get(general, "positionEncodings"), *item;
  size_t i;
  json_array_foreach(encodings, i, item) {
    const char *name = json_string_value(item);
    if (name && strcmp(name, "utf-8") == 0) return true;
  }
  return false;
}

static json_t *capabilities(const Server *server) {
  const char *units = server->documents.units == UNITS_UTF8 ? "utf-8" : "utf-16";
  json_t *able = json_pack(
      "{s:s, s:{s:b, s:i, s:b}, s:b, s:b, s:b, s:b, s:b, s:{s:b}, s:{s:[s]}, s:{s:[s,s], s:[s]}, s:b, s:b, s:b, s:{}}",
      "positionEncoding", units, "textDocumentSync", "openClose", 1, "change", 1, "save", 1, "hoverProvider", 1,
      "definitionProvider", 1, "referencesProvider", 1, "documentHighlightProvider", 1, "documentSymbolProvider", 1,
      "renameProvider", "prepareProvider", 1, "completionProvider", "triggerCharacters", ".", "signatureHelpProvider",
      "triggerCharacters", "(", ",", "retriggerCharacters", ",", "documentFormattingProvider", 1, "codeActionProvider",
      1, "inlayHintProvider", 1, "codeLensProvider");
  return json_pack("{s:o, s:{s:s, s:s}}", "capabilities", able, "serverInfo", "name", "tfmc", "version",
                   server->version);
}

static void initialize(Server *server, const json_t *id, const json_t *params) {
  if (server->state != STATE_NEW) {
    refuse(server, id, FAULT_REQUEST, "initialize was sent before");
    return;
  }
  const json_t *editor = json_object_get(params, "processId");
  if (json_is_integer(editor) && json_integer_value(editor) > 0) server->editor = (pid_t)json_integer_value(editor);
  server->documents.units = offers_utf8(params) ? UNITS_UTF8 : UNITS_UTF16;
  documents_configure(&server->documents, json_object_get(params, "initializationOptions"));
  server->state = STATE_RUNNING;
  answer(server, id, capabilities(server));
}

/* False if the method is not one of these. */
static bool live(Server *server, const char *method, const json_t *id, const json_t *params) {
  if (strcmp(method, "initialize") == 0 && id)
    initialize(server, id, params);
  else if (strcmp(method, "exit") == 0)
    end(server, server->state == STATE_SHUT_DOWN ? 0 : 1);
  else if (strcmp(method, "initialized") == 0)
    return true;
  else if (strcmp(method, "$/cancelRequest") == 0)
    return true; /* what is not in the queue any more is answered */
  else if (strcmp(method, "shutdown") == 0 && id && server->state == STATE_RUNNING) {
    server->state = STATE_SHUT_DOWN;
    answer(server, id, NULL);
  } else
    return false;
  return true;
}

// ---- requests ----

static const struct {
  const char *method;
  RequestFunction answer;
  NoticeFunction notice;
} methods[] = {
#define REQUEST(method, function) {method, request_##function, NULL},
#define NOTICE(method, function) {method, NULL, notice_##function},
#include "lsp/methods.def"
};

json_t *request_fails(const Request *request, int code, const char *text) {
  *request->fault = (Fault){code, text};
  return NULL;
}

bool request_site(const Request *request, Site *site) {
  if (site_of(request->documents, request->params, site)) return true;
  request_fails(request, FAULT_PARAMS, "no open text, or no place in it, is named");
  return false;
}

static void call(Server *server, size_t row, const json_t *id, const json_t *params) {
  Fault fault = {0};
  const Request request = {&server->documents, params, arena_create(), &fault};
  if (!methods[row].answer) {
    methods[row].notice(&request);
  } else {
    json_t *result = methods[row].answer(&request);
    if (fault.code)
      refuse(server, id, fault.code, fault.text);
    else
      answer(server, id, result);
  }
  arena_destroy(request.arena);
}

/* A request has an id, a notice has none; neither may stand for the other. Notices that are not known are passed over.
 */
static void dispatch(Server *server, const char *method, const json_t *id, const json_t *params) {
  if (live(server, method, id, params)) return;
  if (server->state != STATE_RUNNING) {
    const bool is_new = server->state == STATE_NEW;
    if (id)
      refuse(server, id, is_new ? FAULT_NOT_INITIALIZED : FAULT_REQUEST,
             is_new ? "initialize has not been sent" : "the server is shut down");
    return;
  }
  for (size_t row = 0; row < sizeof methods / sizeof *methods; row++) {
    if (strcmp(methods[row].method, method) != 0 || (methods[row].answer != NULL) != (id != NULL)) continue;
    call(server, row, id, params);
    return;
  }
  if (id) refuse(server, id, FAULT_METHOD, "the server has no such method");
}

static void handle(Server *server, const json_t *message) {
  const json_t *id = json_object_get(message, "id"), *method = json_object_get(message, "method");
  const bool has_id = json_is_integer(id) || json_is_string(id);
  if (!json_is_string(method)) {
    const bool is_answer = json_object_get(message, "result") || json_object_get(message, "error");
    if (!is_answer) refuse(server, has_id ? id : NULL, FAULT_REQUEST, "a message needs a method");
    return;
  }
  if (id && !has_id)
    refuse(server, NULL, FAULT_REQUEST, "an id is a number or a text");
  else
    dispatch(server, json_string_value(method), id, json_object_get(message, "params"));
}

// ---- the queue ----

/* A request that waits and is cancelled is answered at once. */
static void cancel(Server *server, const json_t *message) {
  const char *method = json_string_value(json_object_get(message, "method"));
  const json_t *id = json_object_get(json_object_get(message, "params"), "id");
  if (!method || !id || strcmp(method, "$/cancelRequest") != 0) return;
  for (size_t i = server->first; i < server->queue.n; i++) {
    json_t **waiting = &server->queue.items[i];
    if (!*waiting || !json_equal(json_object_get(*waiting, "id"), id) || !json_object_get(*waiting, "method")) continue;
    refuse(server, id, FAULT_CANCELLED, "the request was cancelled");
    json_decref(*waiting);
    *waiting = NULL;
  }
}

static void take(Server *server, const char *text, size_t size) {
  json_error_t error;
  json_t *message = message_is_flat(text, size) ? json_loadb(text, size, JSON_ALLOW_NUL, &error) : NULL;
  if (!message) {
    refuse(server, NULL, FAULT_PARSE, "the message is no JSON, or has too many values");
  } else if (!json_is_object(message)) {
    refuse(server, NULL, FAULT_REQUEST, "a message is an object");
    json_decref(message);
  } else {
    cancel(server, message);
    vec_push(server->arena, &server->queue, message);
  }
}

/* Takes what has arrived. A message that is too long is answered and skipped; without a header nothing goes on. */
static void fill_queue(Server *server) {
  while (server->state != STATE_ENDED && server->queue.n - server->first < MOST_QUEUED) {
    const char *text;
    size_t size;
    switch (frames_next(&server->frames, &text, &size)) {
      case FRAME_MESSAGE:
        take(server, text, size);
        break;
      case FRAME_TOO_LONG:
        refuse(server, NULL, FAULT_REQUEST, "the message is longer than 40 MiB");
        break;
      case FRAME_BROKEN:
        refuse(server, NULL, FAULT_PARSE, "there is no header with a Content-Length");
        end(server, 1);
        return;
      case FRAME_END:
        if (server->first == server->queue.n) end(server, server->state == STATE_SHUT_DOWN ? 0 : 1);
        return;
      case FRAME_NONE:
        return;
    }
  }
}

static void answer_next(Server *server) {
  json_t *message = server->queue.items[server->first++];
  if (message) handle(server, message);
  json_decref(message);
  if (server->first < server->queue.n) return;
  server->queue = (__typeof__(server->queue)){0};
  server->first = 0;
  arena_reset(server->arena);
}

/* A request that makes a plan waits for the messages about the last text, which people wait for. */
static bool is_after_reports(const Server *server) {
  if (server->first + 1 != server->queue.n || !documents_have_news(&server->documents)) return false;
  const char *method = json_string_value(json_object_get(server->queue.items[server->first], "method"));
  return server->state == STATE_RUNNING && method && strcmp(method, "textDocument/codeLens") == 0;
}

/* An editor that was killed may have left its end of the pipe to others. */
static void wait_for_messages(Server *server) {
  while (!frames_wait(&server->frames, server->editor ? LOOK_FOR_EDITOR : -1)) {
    if (!server->editor || kill(server->editor, 0) == 0 || errno != ESRCH) continue;
    end(server, 1);
    return;
  }
}

/* Messages about one text, so that a request which arrives meanwhile need not wait for all of them. */
static void report_or_wait(Server *server) {
  bool is_done = true;
  if (server->state == STATE_RUNNING) report_next(&server->documents, send_report, server, &is_done);
  if (is_done && server->state != STATE_ENDED) wait_for_messages(server);
}

int lsp_serve(int in, int out, const char *version, CostLines *cost_lines) {
  Server server = {.arena = arena_create(), .version = version};
  frames_open(&server.frames, in, out);
  documents_open(&server.documents);
  server.documents.cost_lines = cost_lines;
  while (server.state != STATE_ENDED) {
    fill_queue(&server);
    if (server.state == STATE_ENDED) break;
    if (server.first < server.queue.n && !is_after_reports(&server))
      answer_next(&server);
    else
      report_or_wait(&server);
  }
  while (server.first < server.queue.n) json_decref(server.queue.items[server.first++]);
  documents_close(&server.documents);
  frames_close(&server.frames);
  arena_destroy(server.arena);
  return server.exit_code;
}
