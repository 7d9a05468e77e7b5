/* Roles: what the inputs, outputs and sizes of the incremental form stand for (the rows of roles.def). The names that
 * these also have are for people; nothing reads a meaning out of them. */
#ifndef TFM_GRAPH_ROLES_H
#define TFM_GRAPH_ROLES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum RoleKind {
  ROLE_NONE, /* an input or output of the model */
#define ROLE(Enum, text, where, is_numbered) ROLE_##Enum,
#include "graph/roles.def"
  N_ROLES
} RoleKind;

typedef struct Role { /* what an input or output of the incremental form stands for */
  RoleKind kind;
  uint32_t number; /* where is_numbered */
} Role;

typedef enum SizeRole {
#define SIZE_ROLE(Enum, text) ROLE_##Enum,
#include "graph/roles.def"
  N_SIZE_ROLES
} SizeRole;

typedef struct RoleInfo {
  const char *text;
  enum RolePlace { IN_STEP = 1, OUT_OF_STEP = 2, OUT_OF_ENCODER = 4, OUT_OF_OBJECTIVE = 8 } where;
  bool is_numbered;
} RoleInfo;

extern const RoleInfo role_table[N_ROLES];
extern const char *const size_role_names[N_SIZE_ROLES];

static inline bool role_is_state(Role role) { return role.kind == ROLE_STATE || role.kind == ROLE_RUNNING_SUM; }
/* Whether a step gives what it becomes, which the next one reads. */
static inline bool role_goes_on(Role role) { return role.kind == ROLE_CACHE || role_is_state(role); }
static inline bool role_is(Role a, Role b) { return a.kind == b.kind && a.number == b.number; }

#endif
