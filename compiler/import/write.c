/* The written model: a family's text with the values of a checkpoint.
 *
 * In: the family, the values of its model's parameters. Out: text. It is edited, not printed anew, so comments and
 * layout stay: values take the place of defaults, the checkpoint block goes, and so does what the values decide in the
 * model: branches that are not taken, parameters that nothing reads then, and requirements of those. */
#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#include "import/account.h"
#include "import/expression.h"
#include "import/generation_keys.h"
#include "import/import.h"
#include "import/value_text.h"

typedef struct Writer {
  StrBuf *out;
  const Source *source;
  uint32_t at;    /* what stands before it is written */
  Facts *decided; /* the model's parameters that the checkpoint gives, as names */
  const json_t *generation; /* its settings of generation */
  const char *unrequired;   /* the members without requirements of words; NULL: these are being written */
} Writer;

static void copy_to(Writer *w, uint32_t end) {
  if (end > w->at) strbuf_add_n(w->out, w->source->text + w->at, end - w->at);
  if (end > w->at) w->at = end;
}

static bool has_word(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
    bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    if (begins && !(isalnum((unsigned char)at[length]) || at[length] == '_')) return true;
  }
  return false;
}

// ---- what the checkpoint decides ----

/* A parameter that a name within the model hides is none of those that decide. */
static void remove_hidden(json_t *names, const Ast *node) {
  if (!node) return;
  bool names_one = node->kind == AST_FOR || node->kind == AST_COMPREHENSION || node->kind == AST_PARAM ||
                   node->kind == AST_MEMBER || node->kind == AST_FN;
  if (names_one && node->name) json_object_del(names, node->name);
  for (uint32_t i = 0; i < node->n_children; i++) {
    if (node->kind == AST_NAMES) json_object_del(names, node->children[i]->name);
    remove_hidden(names, node->children[i]);
  }
}

/* Whether an expression has nothing but decided names and constants. */
static bool is_decided(const json_t *names, const Ast *node) {
  static const AstKind plain[] = {AST_NUMBER, AST_STRING,  AST_TRUE,   AST_FALSE,
                                  AST_NONE,   AST_COMPARE, AST_BINARY, AST_LIST};
  bool is_plain = node->kind == AST_NAME && json_object_get(names, node->name);
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) is_plain = is_plain || node->kind == plain[i];
  for (uint32_t i = 0; is_plain && i < node->n_children; i++) is_plain = is_decided(names, node->children[i]);
  return is_plain;
}

/* 1, 0, or -1: the checkpoint does not decide it. One side may decide an `and` or an `or` alone. */
static int decided_truth(Facts *facts, const Ast *node) {
  if (node->kind == AST_NOT) {
    int truth = decided_truth(facts, node->children[0]);
    return truth < 0 ? -1 : !truth;
  }
  if (node->kind != AST_AND && node->kind != AST_OR)
    return is_decided(facts->names, node) ? expression_truth(facts, node) : -1;
  int left = decided_truth(facts, node->children[0]), right = decided_truth(facts, node->children[1]);
  int decisive = node->kind == AST_OR;
  if (left == decisive || right == decisive) return decisive;
  return left < 0 || right < 0 ? -1 : !decisive;
}

static bool write_tree(Writer *w, const Ast *node);

static void write_choice(Writer *w, const Ast *choice, const Ast *chosen) {
  bool is_one = chosen->flag || chosen->kind == AST_NAME || chosen->kind == AST_CALL || chosen->kind == AST_NUMBER;
  bool in_brackets = choice->flag && !is_one;
  copy_to(w, choice->span.begin);
  if (in_brackets) strbuf_add_char(w->out, '(');
  w->at = chosen->span.begin;
  write_tree(w, chosen);
  copy_to(w, chosen->span.end);
  if (in_brackets) strbuf_add_char(w->out, ')');
  w->at = choice->span.end;
}

/* Where the line of a place begins, if nothing but spaces stands before it; else the place itself. */
static uint32_t line_of(const Source *source, uint32_t place) {
  uint32_t begin = place;
  while (begin > 0 && source->text[begin - 1] == ' ') begin--;
  return begin > 0 && source->text[begin - 1] == '\n' ? begin : place;
}

/* The lines of a block two columns to the left, in the place of the `if`. */
static void write_lines(Writer *w, const Ast *branch, const char *text, size_t length) {
  while (length && strchr(" \n", text[length - 1])) length--;
  while (length && *text == ' ') text++, length--;
  bool has_lines = length && *text == '\n';
  copy_to(w, has_lines ? line_of(w->source, branch->span.begin) : branch->span.begin);
  for (size_t i = has_lines; i < length; i++) {
    bool at_line = has_lines && text[i - 1] == '\n';
    if (at_line && strncmp(text + i, "  ", 2) == 0) i += 2;
    strbuf_add_char(w->out, text[i]);
  }
}

static void leave_out(Writer *w, const Ast *branch) {
  uint32_t line = line_of(w->source, branch->span.begin), end = branch->span.end;
  copy_to(w, line);
  while (line < branch->span.begin && end < w->source->size && w->source->text[end] != '\n') end++;
  w->at = end + (line < branch->span.begin && end < w->source->size);
}

/* The branch that is taken in the place of an `if`. True if it ends in a return, behind which nothing is read. */
static bool write_branch(Writer *w, const Ast *branch) {
  const Ast *taken = branch;
  int truth = -1;
  while (taken && taken->kind == AST_IF && (truth = decided_truth(w->decided, taken->children[0])) >= 0)
    taken = taken->children[truth ? 1 : 2];
  if (!taken || !(taken->kind == AST_IF || taken->n_children)) {
    leave_out(w, branch);
    return false;
  }
  if (taken->kind == AST_IF) { /* undecided: it becomes the first one */
    copy_to(w, branch->span.begin);
    w->at = taken->span.begin;
    for (uint32_t i = 0; i < taken->n_children; i++) write_tree(w, taken->children[i]);
    copy_to(w, branch->span.end);
    return false;
  }
  StrBuf text = strbuf_new(w->out->arena);
  Writer inner = {&text, w->source, taken->span.begin + 1, w->decided, w->generation, w->unrequired};
  bool ends = write_tree(&inner, taken);
  copy_to(&inner, taken->span.end - 1);
  write_lines(w, branch, text.text, text.length);
  w->at = branch->span.end;
  return ends;
}

/* A block up to its first return that is not under a condition. */
static bool write_block(Writer *w, const Ast *block) {
  for (uint32_t i = 0; i < block->n_children; i++) {
    if (!write_tree(w, block->children[i])) continue;
    if (i + 1 == block->n_children) return true;
    copy_to(w, block->children[i]->span.end);
    uint32_t end = block->span.end - 1;
    while (end > w->at && strchr(" \n", w->source->text[end - 1])) end--;
    w->at = end;
    return true;
  }
  return false;
}

/* The settings of the block, then those that the checkpoint adds, whose limit of length takes the place of the
 * block's. */
static void write_generate(Writer *w, const Ast *block) {
  const json_t *limit = json_object_get(w->generation, "max_length");
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *value = block->children[i]->children[0];
    if (strcmp(block->children[i]->name, "max_length") != 0 || !json_is_integer(limit)) continue;
    copy_to(w, value->span.begin);
    value_print(w->out, limit);
    w->at = value->span.end;
  }
  uint32_t end = block->span.end - 1;
  while (end > w->at && strchr(" \n", w->source->text[end - 1])) end--;
  copy_to(w, end);
  generation_write(w->out, block, w->generation);
}

/* `require task in [...]` of a word that the checkpoint says and nothing else reads any more. */
static bool is_idle_requirement(const Writer *w, const Ast *node) {
  const Ast *word = node->kind == AST_REQUIRE && !node->text ? node->children[0]->children[0] : NULL;
  if (!word || word->kind != AST_NAME || decided_truth(w->decided, node->children[0]) != 1) return false;
  return !w->unrequired || !has_word(w->unrequired, word->name);
}

/* Writes what stands before and in a node, without what the checkpoint decides against. True: it returns. */
static bool write_tree(Writer *w, const Ast *node) {
  if (!node) return false;
  if (node->kind == AST_BLOCK) return write_block(w, node);
  if (node->kind == AST_GENERATE) write_generate(w, node);
  if (is_idle_requirement(w, node)) {
    leave_out(w, node);
    return false;
  }
  int truth = node->kind == AST_IF || node->kind == AST_CHOICE ? decided_truth(w->decided, node->children[0]) : -1;
  if (truth >= 0 && node->kind == AST_IF) return write_branch(w, node);
  if (truth >= 0) write_choice(w, node, node->children[truth ? 1 : 2]);
  for (uint32_t i = 0; truth < 0 && i < node->n_children; i++) write_tree(w, node->children[i]);
  return node->kind == AST_RETURN;
}

/* The members of the model, as the checkpoint decides them. */
static void write_members(Writer *w, const ImportValues *values) {
  const Ast *model = values->family->model, *params = model->children[0];
  Diag unheard = diag_new(w->out->arena); /* what cannot be evaluated is not decided */
  json_t *names = json_object();
  Facts facts = {.arena = w->out->arena, .diag = &unheard, .names = names, .file = "", .values = values->owned};
  for (uint32_t i = 0; i < params->n_children; i++)
    if (values->of_params[i]) json_object_set(names, params->children[i]->name, values->of_params[i]);
  remove_hidden(names, model->children[1]);
  w->decided = &facts;
  StrBuf unrequired = strbuf_new(w->out->arena);
  Writer before = {&unrequired, w->source, w->at, w->decided, w->generation, NULL};
  write_tree(&before, model->children[1]);
  copy_to(&before, model->children[1]->span.end);
  w->unrequired = unrequired.text;
  write_tree(w, model->children[1]);
  json_decref(names);
}

// ---- its parameters ----

/* Whether a parameter still means anything: in what follows, or in another one's default. */
static bool is_needed(const Writer *w, const ImportValues *values, uint32_t i, const char *members) {
  const Ast *params = values->family->model->children[0];
  const char *name = params->children[i]->name;
  bool needed = has_word(members, name);
  for (uint32_t k = i + 1; !needed && k < params->n_children; k++) {
    const Ast *otherwise = params->children[k]->children[1];
    if (values->of_params[k] || !otherwise) continue;
    int length = (int)(otherwise->span.end - otherwise->span.begin);
    needed = has_word(arena_printf(w->out->arena, "%.*s", length, w->source->text + otherwise->span.begin), name);
  }
  return needed;
}

/* ` = 12` behind a parameter without a default, or 12 in the place of one. What nothing reads any more is left out. */
static void write_params(Writer *w, const ImportValues *values, const char *members) {
  const Ast *params = values->family->model->children[0];
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i], *otherwise = param->children[1];
    if (!is_needed(w, values, i, members)) {
      copy_to(w, param->span.begin);
      if (i + 1 < params->n_children) {
        w->at = params->children[i + 1]->span.begin;
        continue;
      }
      while (w->out->length && strchr(", \n", w->out->text[w->out->length - 1])) w->out->text[--w->out->length] = 0;
      w->at = otherwise ? otherwise->span.end : param->span.end;
      continue;
    }
    if (!values->of_params[i]) continue;
    copy_to(w, otherwise ? otherwise->span.begin : param->span.end);
    if (!otherwise) strbuf_add(w->out, " = ");
    value_print(w->out, values->of_params[i]);
    if (otherwise) w->at = otherwise->span.end;
  }
}

// ---- what is included ----

typedef struct Included {
  const Source *source;
  const Ast *node; /* a layer or a function */
  uint32_t begin;  /* of the comment before it */
  bool is_written;
} Included;

typedef VEC(Included) IncludedNodes;

static uint32_t after_blank_lines(const Source *source, uint32_t at) {
  while (at < source->size && (source->text[at] == '\n' || source->text[at] == '\r')) at++;
  return at;
}

/* Where a layer or a function of the file ends: its span is that of its name. */
static uint32_t end_of(const Ast *node) { return node->children[1]->span.end; }

static IncludedNodes included_nodes(Arena *arena, const Family *family) {
  IncludedNodes nodes = {0};
  for (size_t i = 0; i + 1 < family->program->files.n; i++) {
    const ParsedFile *file = &family->program->files.items[i];
    uint32_t at = 0;
    for (uint32_t k = 0; k < file->ast->n_children; k++) {
      const Ast *node = file->ast->children[k];
      const bool is_wanted = node->kind == AST_FN || (node->kind == AST_LAYER && !node->flag);
      const uint32_t begin = after_blank_lines(file->source, at);
      if (is_wanted) vec_push(arena, &nodes, (Included){file->source, node, begin, false});
      at = node->kind == AST_LAYER || node->kind == AST_FN ? end_of(node) : node->span.end;
    }
  }
  return nodes;
}

/* The layers and functions of included files that the text names, and those that these name. */
static const char *included_text(Arena *arena, const Family *family, const char *text) {
  IncludedNodes nodes = included_nodes(arena, family);
  StrBuf all = strbuf_new(arena);
  strbuf_add(&all, text);
  for (bool grows = true; grows;) {
    grows = false;
    for (size_t i = 0; i < nodes.n; i++) {
      Included *n = &nodes.items[i];
      if (n->is_written || !has_word(all.text, n->node->name)) continue;
      strbuf_add_n(&all, n->source->text + n->begin, end_of(n->node) - n->begin);
      n->is_written = grows = true;
    }
  }
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < nodes.n; i++) {
    const Included *n = &nodes.items[i];
    if (!n->is_written) continue;
    strbuf_add_n(&out, n->source->text + n->begin, end_of(n->node) - n->begin);
    strbuf_add(&out, "\n\n");
  }
  return out.text;
}

/* The file's text up to its model, its block and its includes left out, and the place where what is included stands. */
static void write_before(Writer *w, const Family *family, const char *included) {
  const Ast *file = family->program->files.items[family->program->files.n - 1].ast;
  for (uint32_t i = 0; i < file->n_children; i++) {
    const Ast *node = file->children[i];
    if (node->kind != AST_INCLUDE && node->kind != AST_CHECKPOINT) continue;
    copy_to(w, node->span.begin);
    w->at = after_blank_lines(w->source, node->span.end);
    if (node->kind == AST_CHECKPOINT) strbuf_add(w->out, included);
  }
}

/* Of a folder that reads more than text: what is not computed was not looked at either, which a reader must know. */
static void write_unseen(StrBuf *out, const Family *family, const Folder *folder) {
  const Texts unused = family_texts(out->arena, family, "unused");
  StrBuf found = strbuf_new(out->arena);
  for (size_t i = 0; i < unused.n; i++) {
    size_t n = 0;
    for (size_t k = 0; k < folder->weights->entries.n; k++)
      n += fnmatch(unused.items[i], folder->weights->entries.items[k].tensor->name, FNM_NOESCAPE) == 0;
    if (n) strbuf_printf(&found, "%s%zu of %s", found.length ? ", " : "", n, unused.items[i]);
  }
  strbuf_printf(out, "# The rest is not computed; whether its settings and tensors (%s) fit was not looked at.\n#\n",
                found.length ? found.text : "there are none");
}

static void write_head(StrBuf *out, const Family *family, const Folder *folder, const ImportOptions *options) {
  const char *class = json_string_value(json_array_get(json_object_get(folder->config, "architectures"), 0));
  StrBuf quoted = strbuf_new(out->arena);
  strbuf_add_quoted(&quoted, folder->weights_path);
  strbuf_printf(out, "# Imported from %s", quoted.text);
  if (class) strbuf_add(out, " (");
  if (class) {
    StrBuf name = strbuf_new(out->arena);
    strbuf_add_quoted(&name, class);
    strbuf_printf(out, "%.*s)", (int)name.length - 2, name.text + 1);
  }
  if (folder->part_of) strbuf_printf(out, ", the part for text of a %s,", folder->part_of);
  strbuf_printf(out, " by tfmc %s. To go on:\n#   tfmc compile THIS_FILE --weights %s -o libmodel.so\n#\n",
                options->version, quoted.text);
  if (folder->part_of) write_unseen(out, family, folder);
  StrBuf lacking = strbuf_new(out->arena);
  account_lacking_dropouts(&lacking, family, folder);
  if (lacking.length) strbuf_printf(out, "# Training is without the dropouts of config.json: %s\n#\n", lacking.text);
}

void import_write(StrBuf *out, const ImportValues *values, const Folder *folder, const ImportOptions *options) {
  const Family *family = values->family;
  const uint32_t body = family->model->children[1]->span.begin;
  StrBuf members = strbuf_new(out->arena), own = strbuf_new(out->arena);
  Writer w = {.out = &own, .source = family->source}, after = {&members, w.source, body, NULL, NULL, NULL};
  after.generation = json_object_get(folder->names, "generation");
  write_members(&after, values);
  copy_to(&after, w.source->size);
  /* What the file itself says decides which of the included layers are wanted. */
  Writer unplaced = w;
  write_before(&unplaced, family, "");
  copy_to(&unplaced, body);
  strbuf_add(&own, members.text);
  const char *included = included_text(out->arena, family, own.text);
  write_head(out, family, folder, options);
  w.out = out;
  write_before(&w, family, included);
  write_params(&w, values, members.text);
  copy_to(&w, body);
  strbuf_add(out, members.text);
}
