/* Names: what each name of a program stands for, by the text alone.
 *
 * In: the trees of a program, faulty ones too, and of the standard files. Out: symbols, and every place that names one.
 * What only an elaboration could know (a layer that is a config value, members of it) has no symbol; nothing is
 * guessed. Nothing is refused. */
#ifndef TFM_LSP_NAMES_H
#define TFM_LSP_NAMES_H

#include "lsp/symbols.h"

/* The standard files alone, for all programs; lives as long as the arena. */
Names *names_standard(Arena *arena);
Names *names_of(Arena *arena, const ParsedProgram *program, const Names *standard);

/* The place that names something at the offset, or just before it; NULL: there is none. */
const Occurrence *names_at(const Names *names, const Source *source, uint32_t offset);
/* The innermost layer or function around an offset; NULL: none. */
Symbol *names_around(const Names *names, const Source *source, uint32_t offset, SymbolKind kind);
/* The bytes that a layer or function takes, its body included. */
SrcSpan symbol_extent(const Symbol *symbol);

#endif
