/* The requests of methods.def, one function each, and what the server gives them. */
#ifndef TFM_LSP_REQUESTS_H
#define TFM_LSP_REQUESTS_H

#include "lsp/open_texts.h"

/* Codes of JSON-RPC and of the protocol. */
enum {
  FAULT_PARSE = -32700,
  FAULT_REQUEST = -32600,
  FAULT_METHOD = -32601,
  FAULT_PARAMS = -32602,
  FAULT_NOT_INITIALIZED = -32002,
  FAULT_FAILED = -32803, /* well asked, but not possible */
  FAULT_CANCELLED = -32800,
};

typedef struct Fault {
  int code; /* 0: there is none */
  const char *text;
} Fault;

typedef struct Request {
  Documents *documents;
  const json_t *params;
  Arena *arena; /* of this request */
  Fault *fault;
} Request;

typedef json_t *(*RequestFunction)(const Request *request);
typedef void (*NoticeFunction)(const Request *request);

/* Notes a fault; NULL. */
json_t *request_fails(const Request *request, int code, const char *text);
/* The place that the request is about; false after noting a fault. */
bool request_site(const Request *request, Site *site);

#define REQUEST(method, function) json_t *request_##function(const Request *request);
#define NOTICE(method, function) void notice_##function(const Request *request);
#include "lsp/methods.def"

/* Messages of all texts that have not been reported; each list is given to `send`, which is false if nobody listens. */
bool report_next(Documents *documents, bool (*send)(void *context, json_t *params), void *context, bool *is_done);

/* The words of a symbol as a reader knows them: its line of declaration, and the comment above it or NULL. */
const char *symbol_text(Arena *arena, const Symbol *symbol);
const char *symbol_comment(Arena *arena, const Symbol *symbol);

#endif
