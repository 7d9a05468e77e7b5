/* In: the modules and items of a drawing. Out: what one box stands for: equal siblings, and many items of a kind.
 *
 * Siblings that are equal inside are found by comparing descriptions, and each is drawn as the first of them. Refuses
 * nothing. */
#include <string.h>

#include "draw/drawing_parts.h"

// ---- siblings that are equal ----

static bool is_numbered(const Module *module) {
  return *module->name && module->name[strspn(module->name, "0123456789")] == '\0';
}

bool drawing_is_in(const Module *module, const Module *around) {
  while (module->depth > around->depth) module = module->parent;
  return module == around;
}

static void describe_path(StrBuf *out, const Module *module, const Module *around) {
  if (module == around) return;
  describe_path(out, module->parent, around);
  strbuf_printf(out, ".%s", module->name);
}

static void describe_weights(StrBuf *out, const Module *module) {
  for (size_t i = 0; i < module->weights.n; i++) strbuf_printf(out, "w %s\n", module->weights.items[i].text);
  for (size_t i = 0; i < module->children.n; i++) {
    strbuf_printf(out, "in %s\n", module->children.items[i]->name);
    describe_weights(out, module->children.items[i]);
  }
}

/* Labels and modules of all items, edges inside by number, and what comes from outside by its shape alone. */
static const char *describe(Drawing *drawing, const Module *module, const uint32_t *local) {
  StrBuf out = strbuf_new(drawing->arena);
  for (size_t i = 0; i < module->all.n; i++) {
    const Item *item = &drawing->items.items[module->all.items[i]];
    strbuf_printf(&out, "%u %s ", (unsigned)item->look, item->label);
    describe_path(&out, item->module, module);
    for (size_t k = 0; k < item->inputs.n; k++) {
      uint32_t from = item->inputs.items[k].from;
      if (drawing_is_in(drawing->items.items[from].module, module)) strbuf_printf(&out, " %u", local[from]);
      else strbuf_add(&out, " out");
    }
    strbuf_add_char(&out, '\n');
  }
  describe_weights(&out, module);
  return out.text;
}

/* Equal siblings among the children of a module, wherever they stand: the first stands for all of them. Layers of two
 * kinds in turns are two boxes. */
void drawing_find_repetition(Drawing *drawing, Module *parent, uint32_t *local) {
  Map kinds = map_new(drawing->arena);
  for (size_t i = 0; i < parent->children.n; i++) {
    Module *module = parent->children.items[i];
    if (!is_numbered(module)) continue;
    for (size_t k = 0; k < module->all.n; k++) local[module->all.items[k]] = (uint32_t)k;
    module->inside = describe(drawing, module, local);
    Module *first = map_get(&kinds, module->inside);
    if (first && first->all.n == module->all.n) {
      module->repeated = 0;
      module->first = first;
      first->repeated++;
      vec_push(drawing->arena, &first->equal, module);
    } else {
      map_put(&kinds, module->inside, module);
    }
  }
}

/* What is drawn of an item: that of the first of equal siblings, at every level. */
static void find_stand_ins(Picture *picture, Module *module, uint32_t *local) {
  drawing_find_repetition(picture->drawing, module, local);
  for (size_t i = 0; i < module->children.n; i++) {
    Module *child = module->children.items[i];
    if (child->depth < picture->depth && child->repeated) find_stand_ins(picture, child, local);
    if (child->repeated) continue;
    for (size_t k = 0; k < child->all.n; k++)
      picture->stands_for[child->all.items[k]] = picture->stands_for[child->first->all.items[k]];
  }
}

// ---- many of a kind ----

/* More boxes than this that look alike and get the same are one. Views are at once: slices of one value. */
enum { MOST_ALIKE = 12, MOST_ALIKE_VIEWS = 1, MOST_ROUNDS = 8 };

/* What makes items alike: their module, their look, the operation (of a port: nothing), and where what they get comes
 * from. */
static const char *kind_of(const Picture *picture, const Item *item) {
  StrBuf kind = strbuf_new(picture->drawing->arena);
  strbuf_printf(&kind, "%u %u ", item->module->number, (unsigned)item->look);
  if (item->look == DRAW_VIEW) strbuf_add(&kind, item->label);
  if (item->look == DRAW_OPERATION) strbuf_add_n(&kind, item->label, strcspn(item->label, "\n"));
  for (size_t i = 0; i < item->inputs.n; i++)
    strbuf_printf(&kind, " %lld", (long long)picture->stands_for[item->inputs.items[i].from]);
  return kind.text;
}

typedef struct Alike {
  VEC(uint32_t) items;
} Alike;

/* One round: those that are alike now get the first as their stand-in, so that what follows them may become alike. */
static bool join_alike(Picture *picture) {
  Drawing *drawing = picture->drawing;
  Map kinds = map_new(drawing->arena);
  for (uint32_t i = 0; i < drawing->items.n; i++) {
    const Item *item = &drawing->items.items[i];
    if (picture->stands_for[i] != i || item->module->depth >= picture->depth || item->members > 1) continue;
    const char *kind = kind_of(picture, item);
    if (!map_has(&kinds, kind)) map_put(&kinds, kind, ARENA_NEW(drawing->arena, Alike));
    Alike *alike = map_get(&kinds, kind);
    vec_push(drawing->arena, &alike->items, i);
  }
  bool any = false;
  for (size_t k = 0; k < kinds.n; k++) {
    const Alike *alike = kinds.items[k].value;
    Item *first = &drawing->items.items[alike->items.items[0]];
    if (alike->items.n <= (first->look == DRAW_VIEW ? MOST_ALIKE_VIEWS : MOST_ALIKE)) continue;
    any = true;
    first->members = (uint32_t)alike->items.n;
    first->last = drawing->items.items[alike->items.items[alike->items.n - 1]].label;
    for (size_t i = 1; i < alike->items.n; i++) picture->stands_for[alike->items.items[i]] = alike->items.items[0];
  }
  return any;
}

static void find_alike(Picture *picture) {
  for (int round = 0; round < MOST_ROUNDS && join_alike(picture); round++)
    for (uint32_t i = 0; i < picture->drawing->items.n; i++)
      picture->stands_for[i] = picture->stands_for[picture->stands_for[i]];
}

// ---- views ----

/* Of two views, one of which is for the other alone, the second stands for both: "reshape, permute" below each other in
 * one box. They compute nothing, and would take most of the room. */
static void join_views(Picture *picture, const uint32_t *n_uses) {
  enum { LONGEST = 60 }; /* so that a picture of many is not one box */
  Drawing *drawing = picture->drawing;
  for (uint32_t to = 0; to < drawing->items.n; to++) {
    Item *item = &drawing->items.items[to];
    if (item->look != DRAW_VIEW || item->inputs.n != 1) continue;
    const uint32_t from = item->inputs.items[0].from;
    Item *before = &drawing->items.items[from];
    if (before->look != DRAW_VIEW || before->module != item->module || n_uses[from] != 1) continue;
    if (strlen(before->label) > LONGEST) continue;
    item->label = arena_printf(drawing->arena, "%s\n%s", before->label, item->label);
    item->inputs.n = 0;
    for (size_t i = 0; i < before->inputs.n; i++) vec_push(drawing->arena, &item->inputs, before->inputs.items[i]);
    before->inputs.n = 0;
    picture->stands_for[from] = to;
  }
  for (size_t i = drawing->items.n; i-- > 0;) picture->stands_for[i] = picture->stands_for[picture->stands_for[i]];
}

static const uint32_t *count_uses(const Drawing *drawing) {
  uint32_t *n_uses = ARENA_ARRAY(drawing->arena, uint32_t, drawing->items.n + 1);
  for (size_t i = 0; i < drawing->items.n; i++) {
    const Item *item = &drawing->items.items[i];
    for (size_t k = 0; k < item->inputs.n; k++) n_uses[item->inputs.items[k].from]++;
  }
  return n_uses;
}

void drawing_fold(Picture *picture) {
  const uint32_t n = (uint32_t)picture->drawing->items.n;
  for (uint32_t i = 0; i < n; i++) picture->stands_for[i] = i;
  join_views(picture, count_uses(picture->drawing));
  uint32_t *local = ARENA_ARRAY(picture->drawing->arena, uint32_t, n + 1);
  if (picture->depth > 0) find_stand_ins(picture, picture->drawing->root, local);
  find_alike(picture);
}
