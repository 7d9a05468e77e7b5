/* In: the weights that a model needs and the tensors of a file. Out: messages about weights whose names stand in the
 * file behind a prefix, with what to write; they take the place of one message for each weight.
 *
 * A name of the model may stand in the file behind several prefixes: "norm.weight" in the norms of all layers. One
 * prefix for everything is advised only if it finds all weights that the file has in any place, so that the advice
 * never leads from one message to its opposite. Else the modules of the model are looked at one by one, each by the
 * first part of its path: in the checkpoint of a classifier the trunk lies below "distilbert.", the head does not. A
 * module gets advice if one prefix finds all of its weights; of several the shortest is taken. */
#include <string.h>

#include "engines/weight_prefixes.h"

enum { MOST_MODULES = 6 };

typedef struct Group { /* the weights whose paths begin with the same part */
  const char *part;
  const char *prefix; /* what stands before the part in the file; NULL: no one prefix finds all of them */
} Group;

struct WeightPrefixes {
  const WeightCheck *check;
  const NodeList *needed;
  const WeightSet *set;
  const char *common; /* finds every weight that the file has anywhere; NULL: there is none */
  VEC(Group) groups;
  const char *advice; /* NULL: neither a prefix nor `as` helps */
};

// ---- names behind prefixes ----

/* The model's own name of a weight, without the text of --weights-prefix. */
static const char *own_name(const WeightPrefixes *p, const char *name) { return name + strlen(p->check->prefix); }

static const char *behind(const WeightPrefixes *p, const char *prefix, const char *own) {
  return arena_printf(p->check->arena, "%s%s", prefix, own);
}

static bool is_in_file(const WeightPrefixes *p, const char *prefix, const char *name) {
  return weight_set_find(p->set, behind(p, prefix, own_name(p, name)));
}

/* The text before the weight's own name in the i-th name of the file; NULL if that is another weight. A match must
 * begin at a dot: "norm.weight" is no part of "layernorm.weight". */
static const char *prefix_at(const WeightPrefixes *p, size_t i, const char *name) {
  const char *own = own_name(p, name), *other = p->set->entries.items[i].name;
  const size_t length = strlen(own), n = strlen(other);
  if (n < length || strcmp(other + n - length, own) != 0) return NULL;
  if (n != length && (n == length + 1 || other[n - length - 1] != '.')) return NULL;
  return arena_printf(p->check->arena, "%.*s", (int)(n - length), other);
}

/* The shortest; NULL: the file has the weight nowhere. */
static const char *prefix_in_file(const WeightPrefixes *p, const char *name) {
  const char *shortest = NULL;
  for (size_t i = 0; i < p->set->entries.n; i++) {
    const char *prefix = prefix_at(p, i, name);
    if (prefix && (!shortest || strlen(prefix) < strlen(shortest))) shortest = prefix;
  }
  return shortest;
}

// ---- members of the model ----

static size_t part_length(const WeightPrefixes *p, const char *name) { return strcspn(own_name(p, name), "."); }

static bool is_of(const WeightPrefixes *p, const char *name, const char *part) {
  return !part || (strlen(part) == part_length(p, name) && strncmp(own_name(p, name), part, strlen(part)) == 0);
}

/* Whether the prefix finds all weights of a part (NULL: of the model) that the file has anywhere. */
static bool finds_all(const WeightPrefixes *p, const char *prefix, const char *part) {
  for (size_t i = 0; i < p->needed->nodes.n; i++) {
    const char *name = p->needed->nodes.items[i]->attr.name;
    if (is_of(p, name, part) && !is_in_file(p, prefix, name) && prefix_in_file(p, name)) return false;
  }
  return true;
}

/* The shortest prefix that finds all of them. Its candidates are those of the first weight that the file has. */
static const char *prefix_of(const WeightPrefixes *p, const char *part) {
  const char *first = NULL, *best = NULL;
  for (size_t i = 0; i < p->needed->nodes.n && !first; i++) {
    const char *name = p->needed->nodes.items[i]->attr.name;
    if (is_of(p, name, part) && prefix_in_file(p, name)) first = name;
  }
  for (size_t i = 0; first && i < p->set->entries.n; i++) {
    const char *prefix = prefix_at(p, i, first);
    if (!prefix || (best && strlen(best) <= strlen(prefix))) continue;
    if (finds_all(p, prefix, part)) best = prefix;
  }
  return best;
}

static Group *find_group(const WeightPrefixes *p, const char *name) {
  for (size_t i = 0; i < p->groups.n; i++)
    if (is_of(p, name, p->groups.items[i].part)) return &p->groups.items[i];
  return NULL;
}

static void add_groups(WeightPrefixes *p) {
  Arena *arena = p->check->arena;
  for (size_t i = 0; i < p->needed->nodes.n; i++) {
    const char *name = p->needed->nodes.items[i]->attr.name;
    if (find_group(p, name)) continue;
    const char *part = arena_strndup(arena, own_name(p, name), part_length(p, name));
    vec_push(arena, &p->groups, (Group){part, prefix_of(p, part)});
  }
}

// ---- the message about prefixes ----

/* Modules around a model, whose state_dict was saved in place of the model's. */
static const struct {
  const char *prefix, *of, *inside;
} wrappers[] = {{"_orig_mod.", "torch.compile", "model._orig_mod"},
                {"module.", "DataParallel", "model.module"},
                {"base_model.model.", "peft", "model.merge_and_unload()"}};

/* Of a file all of whose names begin as such a module writes them; NULL: none does. */
static const char *wrapper_advice(const WeightPrefixes *p) {
  for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++) {
    size_t i = 0, length = strlen(wrappers[w].prefix);
    while (i < p->set->entries.n && strncmp(p->set->entries.items[i].name, wrappers[w].prefix, length) == 0) i++;
    if (i && i == p->set->entries.n)
      return arena_printf(p->check->arena, "all names begin with \"%s\", which %s puts before them: save %s instead",
                          wrappers[w].prefix, wrappers[w].of, wrappers[w].inside);
  }
  return NULL;
}

static const char *prefix_advice(const WeightPrefixes *p) {
  if (p->check->is_import)
    return arena_printf(p->check->arena, "all names in the file begin with \"%s\", those of the family do not",
                        p->common);
  if (!*p->common) return "try it without --weights-prefix";
  return arena_printf(p->check->arena, "try --weights-prefix %s", p->common);
}

/* add `as "distilbert.embeddings"` to embeddings, ... */
static const char *as_advice(const WeightPrefixes *p) {
  StrBuf text = strbuf_new(p->check->arena);
  size_t n = 0;
  strbuf_add(&text, p->check->is_import ? "the file has other names: " : "no --weights-prefix finds all weights: ");
  if (*p->check->prefix) strbuf_add(&text, "leave it out and ");
  for (size_t i = 0; i < p->groups.n; i++) {
    const Group *group = &p->groups.items[i];
    if (!group->prefix || !*group->prefix || ++n > MOST_MODULES) continue;
    strbuf_printf(&text, "%s `as \"%s%s\"` to %s", n == 1 ? "add" : ",", group->prefix, group->part, group->part);
  }
  if (n > MOST_MODULES) strbuf_printf(&text, ", and likewise to %zu more", n - MOST_MODULES);
  return n ? text.text : NULL;
}

/* If the file has all weights in their places, which is the usual case, nothing is searched. */
WeightPrefixes *weight_prefixes_new(const WeightCheck *check, const NodeList *needed, const WeightSet *set) {
  WeightPrefixes *p = ARENA_NEW(check->arena, WeightPrefixes);
  *p = (WeightPrefixes){.check = check, .needed = needed, .set = set};
  size_t n_missing = 0;
  for (size_t i = 0; i < needed->nodes.n; i++) n_missing += !weight_set_find(set, needed->nodes.items[i]->attr.name);
  if (!n_missing) return p;
  p->common = prefix_of(p, NULL);
  if (!p->common) add_groups(p);
  p->advice = check->is_import ? wrapper_advice(p) : NULL;
  if (!p->advice) p->advice = p->common ? prefix_advice(p) : as_advice(p);
  return p;
}

/* What stands before the own name of a missing weight in the file, where the advice finds it; NULL: it does not. */
static const char *found_behind(const WeightPrefixes *p, const char *name) {
  if (!p->advice || weight_set_find(p->set, name)) return NULL;
  const Group *group = p->common ? NULL : find_group(p, name);
  const char *prefix = group ? group->prefix : p->common;
  return prefix && is_in_file(p, prefix, name) ? prefix : NULL;
}

bool weight_prefixes_told(const WeightPrefixes *p, const char *name) { return found_behind(p, name) != NULL; }

void weight_prefixes_report(const WeightPrefixes *p) {
  const Node *first = NULL;
  size_t n = 0;
  for (size_t i = 0; i < p->needed->nodes.n; i++) {
    const Node *node = p->needed->nodes.items[i];
    if (weight_prefixes_told(p, node->attr.name) && !n++) first = node;
  }
  if (!n) return;
  const char *name = first->attr.name, *others = "";
  if (n > 1) others = arena_printf(p->check->arena, ", and likewise for %zu more", n - 1);
  diag_error_at(p->check->diag, p->set->path, DIAG_WEIGHT_MISSING, "there is no tensor \"%s\", but \"%s\"%s; %s", name,
                behind(p, found_behind(p, name), own_name(p, name)), others, p->advice);
  diag_note(p->check->diag, origin_place(&first->origin), "the weight is declared here");
}

const char *weight_prefixes_hint(const WeightPrefixes *p, const char *name) {
  const char *prefix = prefix_in_file(p, name);
  return prefix ? arena_printf(p->check->arena, ", but \"%s\"", behind(p, prefix, own_name(p, name))) : NULL;
}
