/* The members of tfm_generate_options, one a line, each after the texts that its comment is made of. This file is
 * preprocessed by cmake/generated.cmake and never compiled; the @ are marks for the regular expressions there. */
#define MEMBER_count(member) int64_t member;
#define MEMBER_limit MEMBER_count
#define MEMBER_real(member) double member;
#define MEMBER_flag(member) int32_t member;
#define MEMBER_token(member) int64_t member;
#define MEMBER_tokens(member) tfm_token_list member;
#define MEMBER_biases(member) tfm_bias_list member;
#define MEMBER_early(member) tfm_early_stopping member;
#define MEMBER_seed(member) uint64_t member;
#define MEMBER_start(member)
#define GENERATE_OPTION(name, member, kind, initial, range, accepted, needs, flag, argument, help, comment) \
  @ help @ comment @ MEMBER_##kind(member) @
#define GENERATE_HOOK(declaration, comment) @ "" @ comment @ declaration; @
#include "generate_options.def"
