/* The C header of a compiled library: C99 and C++, standing alone. */
#ifndef TFM_AOT_HEADER_H
#define TFM_AOT_HEADER_H

#include "aot/emit_library.h"
#include "base/strbuf.h"

void write_header(StrBuf *out, const LibraryParts *parts);

#endif
