/* The grammar of .tfm: IELR(1) without conflicts; how tightly operators bind is written in the rules.
 *
 * In: tokens of the TokenStream (parse/tokens.c). Out: parser->result, a tree of ast/ast_nodes.def. After a fault the
 * token SYNC says where reading goes on, so that later faults are found too; the tree is then thrown away. Lists are
 * left-recursive, so the parser's stack grows with nesting only. LAC makes the list of expected tokens exact: without
 * it a default reduction would offer tokens that cannot follow. */
%define api.pure full
%define api.prefix {tfm_yy}
%define api.token.prefix {TOK_}
%define api.token.raw
%define api.location.type {SrcSpan}
%define parse.error custom
%define parse.lac full
%define lr.type ielr
%locations
%expect 0
%parse-param {Parser *parser}
%lex-param {Parser *parser}
%initial-action { @$ = (SrcSpan){parser->source, 0, 0}; }

%code requires {
#include "parse/parser.h"
}

%code provides {
/* The TokenStream's (parse/tokens.c). */
int tfm_yylex(TFM_YYSTYPE *value, SrcSpan *span, Parser *parser);
}

%code {
#include "parse/tokens.h"

#define YYLLOC_DEFAULT(Current, Rhs, N)                                                              \
  do {                                                                                               \
    SrcSpan before = YYRHSLOC(Rhs, 0);                                                               \
    (Current) = (N) ? span_join(YYRHSLOC(Rhs, 1), YYRHSLOC(Rhs, N)) : span_join(before, before);     \
    if (!(N)) (Current).begin = before.end;                                                          \
  } while (0)

/* Brackets are counted by the TokenStream; what else nests, `if .. then .. else if` and `a ** b ** c`, ends here. */
#define YYMAXDEPTH 10000

#define NODE(kind, span, name, ...) node_new(parser, AST_##kind, span, name, __VA_ARGS__)
#define NODE_OF(kind, span, name, first, list) node_of_list(parser, AST_##kind, span, name, first, list)

static void tfm_yyerror(const SrcSpan *at, Parser *parser, const char *message);
}

%union {
  const char *text;
  Ast *node;
  AstList *list;
}

%token START_FILE "start of a file" START_EXPRESSION "start of an expression" SYNC "place to go on"
%token YYEOF 0 "end of the text"
%token <text> NAME "name" STRING "string"
%token <node> NUMBER "number"
%token INCLUDE "include" LAYER "layer" MODEL "model" WEIGHT "weight" FN "fn" FORWARD "forward" GENERATE "generate"
%token TRAIN "train" ADAPT "adapt" FORWARD_CALLED "forward()"
%token FROM "from" RETURN "return" IF "if" THEN "then" ELSE "else" REQUIRE "require" AS "as" RAGGED "ragged"
%token FOR "for" IN "in"
%token CHECKPOINT "checkpoint" EXPECT "expect" IGNORE "ignore"
%token AND "and" OR "or" NOT "not" NONE "none" TRUE "true" FALSE "false"
%token LPAREN "(" RPAREN ")" LBRACKET "[" RBRACKET "]" LBRACE "{" RBRACE "}"
%token COMMA "," COLON ":" DOT "." ELLIPSIS "..." ASSIGN "=" ARROW "->"
%token PLUS "+" MINUS "-" STAR "*" SLASH "/" DSLASH "//" PERCENT "%" AT "@" POWER "**"
%token EQ "==" NE "!=" LT "<" GT ">" LE "<=" GE ">="

%type <list> file params params1 sizes sizes1 dims dims1 members settings stmts names results args args1 indices items
%type <list> items1 texts entries
%type <node> top config header param annot default type size member else_m block_m body block_s stmt else_s result expr
%type <node> initial text entry key pipe or and not cmp sum product unary power postfix arg index opt atom item setting
%type <text> as word cmpop mulop

%%
/* bison knows one start symbol; the TokenStream puts one of two tokens first to choose between a file and the
 * expression of a -D. */
start: START_FILE file               { parser->result = NODE_OF(FILE, @2, NULL, NULL, $2); }
 | START_EXPRESSION expr             { parser->result = $2; } ;

file: %empty                         { $$ = list_new(parser); }
 | file top                          { $$ = list_add(parser, $1, $2); } ;
top: "include" STRING                { $$ = NODE(INCLUDE, @$, $2, NO_CHILDREN); }
 | "layer" NAME config block_m       { $$ = NODE(LAYER, span_join(@1, @2), $2, CHILDREN($3, $4)); }
 | "model" NAME config block_m       { $$ = NODE(LAYER, span_join(@1, @2), $2, CHILDREN($3, $4)); $$->flag = true; }
 | "fn" NAME header body             { $$ = NODE(FN, span_join(@1, @2), $2, CHILDREN($3, $4)); }
 | "checkpoint" texts "{" entries "}" {
     Ast *types = NODE_OF(LIST, @2, NULL, NULL, $2);
     $$ = NODE(CHECKPOINT, @$, NULL, CHILDREN(types, NODE_OF(BLOCK, span_join(@3, @5), NULL, NULL, $4)));
   }
 | error SYNC                        { $$ = NULL; yyerrok; } ;

/* For which checkpoints a model is, and what their configs mean; only `tfmc import` reads it. `checkpoint`, `expect` and
 * `ignore` are names everywhere else (parse/tokens.c). */
entries: %empty                      { $$ = list_new(parser); }
 | entries entry                     { $$ = list_add(parser, $1, $2); } ;
entry: NAME "=" expr                 { $$ = NODE(SETTING, @1, $1, CHILDREN($3)); }
 | "expect" key "=" expr             { $$ = NODE(EXPECT, @$, NULL, CHILDREN($2, $4)); }
 | "require" expr "," STRING         { $$ = NODE(REQUIRE, @$, NULL, CHILDREN($2)); $$->text = $4; }
 | "ignore" texts                    { $$ = NODE_OF(IGNORE, @$, NULL, NULL, $2); }
 | NAME texts                        { $$ = NODE_OF(LISTING, @1, $1, NULL, $2); }
 | error SYNC                        { $$ = NULL; yyerrok; } ;
key: word                            { $$ = NODE(NAME, @$, $1, NO_CHILDREN); }
 | key "." word                      { $$ = NODE(DOT, @$, $3, CHILDREN($1)); } ;
texts: text                          { $$ = list_add(parser, list_new(parser), $1); }
 | texts "," text                    { $$ = list_add(parser, $1, $3); } ;
text: STRING                         { $$ = NODE(STRING, @$, NULL, NO_CHILDREN); $$->text = $1; } ;

/* The span of what declares a name ends with the name, so that messages mark it alone (@1, or @1 to @2). */
config: %empty                       { $$ = NODE(PARAMS, @$, NULL, NO_CHILDREN); }
 | header ;
header: "(" params ")"               { $$ = NODE_OF(PARAMS, @$, NULL, NULL, $2); } ;
params: %empty                       { $$ = list_new(parser); }
 | params1
 | params1 ","                       { $$ = $1; }
 | error SYNC                        { $$ = list_new(parser); yyerrok; } ;
params1: param                       { $$ = list_add(parser, list_new(parser), $1); }
 | params1 "," param                 { $$ = list_add(parser, $1, $3); } ;
param: NAME annot default            { $$ = NODE(PARAM, @1, $1, CHILDREN($2, $3)); } ;
annot: %empty                        { $$ = NULL; }
 | ":" type                          { $$ = $2; } ;
default: %empty                      { $$ = NULL; }
 | "=" expr                          { $$ = $2; } ;
type: NAME "[" sizes "]"             { $$ = NODE_OF(TYPE, @$, $1, NULL, $3); } ;
sizes: %empty                        { $$ = list_new(parser); }
 | sizes1 ;
sizes1: size                         { $$ = list_add(parser, list_new(parser), $1); }
 | sizes1 "," size                   { $$ = list_add(parser, $1, $3); } ;
size: expr
 | "ragged" expr                     { $$ = NODE(RAGGED, @$, NULL, CHILDREN($2)); } ;
dims: %empty                         { $$ = list_new(parser); }
 | dims1 ;
dims1: expr                          { $$ = list_add(parser, list_new(parser), $1); }
 | dims1 "," expr                    { $$ = list_add(parser, $1, $3); } ;

/* What stands in the braces of a layer. A member is an assignment; a statement of a function looks like one but may
 * have several names, so blocks of members (_m) and of statements (_s) have rules of their own. */
members: %empty                      { $$ = list_new(parser); }
 | members member                    { $$ = list_add(parser, $1, $2); } ;
member: NAME "=" expr as             { $$ = NODE(MEMBER, @1, $1, CHILDREN($3)); $$->text = $4; }
 | "weight" word ":" "[" dims "]" initial as {
     Ast *shape = NODE_OF(LIST, span_join(@4, @6), NULL, NULL, $5);
     $$ = NODE(WEIGHT, span_join(@1, @2), $2, CHILDREN(shape, $7));
     $$->text = $8;
   }
 | "weight" "*" "=" expr             { $$ = NODE(INITIAL, span_join(@1, @2), NULL, CHILDREN($4)); }
 | "require" expr "," STRING         { $$ = NODE(REQUIRE, @$, NULL, CHILDREN($2)); $$->text = $4; }
 | "require" expr                    { $$ = NODE(REQUIRE, @$, NULL, CHILDREN($2)); check_choice(parser, $2); }
 | "if" expr block_m else_m          { $$ = NODE(IF, @$, NULL, CHILDREN($2, $3, $4)); }
 | "fn" NAME header body             { $$ = NODE(FN, span_join(@1, @2), $2, CHILDREN($3, $4)); }
 | "forward" header body             {
     $$ = NODE(FN, @1, intern(parser, "forward"), CHILDREN($2, $3));
     $$->flag = true;
   }
 | "generate" NAME "from" NAME "{" settings "}" { $$ = NODE_OF(GENERATE, @$, $2, NULL, $6); $$->text = $4; }
 | "train" NAME "{" settings "}"     { $$ = NODE_OF(TRAIN, span_join(@1, @2), $2, NULL, $4); }
 | "adapt" expr "{" settings "}"     { $$ = NODE_OF(ADAPT, span_join(@1, @2), NULL, $2, $4); }
 | error SYNC                        { $$ = NULL; yyerrok; } ;
settings: %empty                     { $$ = list_new(parser); }
 | settings setting                  { $$ = list_add(parser, $1, $2); } ;
setting: NAME "=" expr               { $$ = NODE(SETTING, @1, $1, CHILDREN($3)); }
 | error SYNC                        { $$ = NULL; yyerrok; } ;
initial: %empty                      { $$ = NULL; }
 | "=" expr                          { $$ = $2; } ;
as: %empty                           { $$ = NULL; }
 | "as" STRING                       { $$ = $2; } ;
block_m: "{" members "}"             { $$ = NODE_OF(BLOCK, @$, NULL, NULL, $2); } ;
else_m: %empty                       { $$ = NULL; }
 | "else" block_m                    { $$ = $2; }
 | "else" "if" expr block_m else_m   { $$ = NODE(IF, span_join(@2, @5), NULL, CHILDREN($3, $4, $5)); } ;

body: "=" expr                       { $$ = $2; }
 | block_s ;
block_s: "{" stmts "}"               { $$ = NODE_OF(BLOCK, @$, NULL, NULL, $2); } ;
stmts: %empty                        { $$ = list_new(parser); }
 | stmts stmt                        { $$ = list_add(parser, $1, $2); } ;
stmt: names "=" expr                 { $$ = NODE(ASSIGN, @$, NULL, CHILDREN(NODE_OF(NAMES, @1, NULL, NULL, $1), $3)); }
 | "require" expr "," STRING         { $$ = NODE(REQUIRE, @$, NULL, CHILDREN($2)); $$->text = $4; }
 | "require" expr                    { $$ = NODE(REQUIRE, @$, NULL, CHILDREN($2)); check_choice(parser, $2); }
 | "if" expr block_s else_s          { $$ = NODE(IF, @$, NULL, CHILDREN($2, $3, $4)); }
 | "for" NAME "in" expr block_s      { $$ = NODE(FOR, span_join(@1, @2), $2, CHILDREN($4, $5)); }
 | "return" results                  { $$ = NODE_OF(RETURN, @$, NULL, NULL, $2); }
 | error SYNC                        { $$ = NULL; yyerrok; } ;
else_s: %empty                       { $$ = NULL; }
 | "else" block_s                    { $$ = $2; }
 | "else" "if" expr block_s else_s   { $$ = NODE(IF, span_join(@2, @5), NULL, CHILDREN($3, $4, $5)); } ;
names: NAME                          { $$ = list_add(parser, list_new(parser), NODE(NAME, @1, $1, NO_CHILDREN)); }
 | names "," NAME                    { $$ = list_add(parser, $1, NODE(NAME, @3, $3, NO_CHILDREN)); } ;
results: result                      { $$ = list_add(parser, list_new(parser), $1); }
 | results "," result                { $$ = list_add(parser, $1, $3); } ;
result: expr                         { $$ = NODE(RESULT, @$, NULL, CHILDREN($1)); }
 | NAME "=" expr                     { $$ = NODE(RESULT, @$, $1, CHILDREN($3)); } ;

/* `forward` is a keyword that begins a member; where an operand is expected the TokenStream makes "forward()" of it.
 *
 * Expressions, loosest first; each rule's left operand is its own level, its right one the next, which makes operators
 * associate to the left. `**` alone associates to the right, and its exponent may have a sign. `cmp` has no recursion,
 * so a < b < c is an error rather than a surprise, and `unary` takes one sign. The target of a pipe is a product:
 * `x -> f + y` is refused, because (x -> f) + y and x -> (f + y) are equally likely to be meant. */
expr: pipe
 | "if" pipe "then" expr "else" expr { $$ = NODE(CHOICE, @$, NULL, CHILDREN($2, $4, $6)); } ;
pipe: or
 | pipe "->" product                 { $$ = NODE(PIPE, @$, NULL, CHILDREN($1, $3)); } ;
or: and
 | or "or" and                       { $$ = NODE(OR, @$, NULL, CHILDREN($1, $3)); } ;
and: not
 | and "and" not                     { $$ = NODE(AND, @$, NULL, CHILDREN($1, $3)); } ;
not: cmp
 | "not" cmp                         { $$ = NODE(NOT, @$, NULL, CHILDREN($2)); } ;
cmp: sum
 | sum cmpop sum                     { $$ = NODE(COMPARE, @$, intern(parser, $2), CHILDREN($1, $3)); } ;
cmpop: "==" { $$ = "=="; } | "!=" { $$ = "!="; } | "<" { $$ = "<"; } | ">" { $$ = ">"; } | "<=" { $$ = "<="; }
 | ">=" { $$ = ">="; } | "in" { $$ = "in"; } ;
sum: product
 | sum "+" product                   { $$ = NODE(BINARY, @$, intern(parser, "+"), CHILDREN($1, $3)); }
 | sum "-" product                   { $$ = NODE(BINARY, @$, intern(parser, "-"), CHILDREN($1, $3)); } ;
product: unary
 | product mulop unary               { $$ = NODE(BINARY, @$, intern(parser, $2), CHILDREN($1, $3)); } ;
mulop: "*" { $$ = "*"; } | "/" { $$ = "/"; } | "//" { $$ = "//"; } | "%" { $$ = "%"; } | "@" { $$ = "@"; } ;
unary: power
 | "-" power                         { $$ = NODE(NEGATE, @$, NULL, CHILDREN($2)); } ;
power: postfix
 | postfix "**" unary                { $$ = NODE(BINARY, @$, intern(parser, "**"), CHILDREN($1, $3)); } ;
postfix: atom
 | postfix "(" args ")"              { $$ = NODE_OF(CALL, @$, NULL, $1, $3); }
 | postfix "[" indices "]"           { $$ = NODE_OF(INDEX, @$, NULL, $1, $3); }
 | postfix "." word                  { $$ = NODE(DOT, @$, $3, CHILDREN($1)); } ;
args: %empty                         { $$ = list_new(parser); }
 | args1
 | args1 ","                         { $$ = $1; } ;
args1: arg                           { $$ = list_add(parser, list_new(parser), $1); }
 | args1 "," arg                     { $$ = list_add_argument(parser, $1, $3); } ;
arg: expr                            { $$ = NODE(ARG, @$, NULL, CHILDREN($1)); }
 | NAME "=" expr                     { $$ = NODE(ARG, @$, $1, CHILDREN($3)); } ;
indices: index                       { $$ = list_add(parser, list_new(parser), $1); }
 | indices "," index                 { $$ = list_add(parser, $1, $3); } ;
index: expr
 | opt ":" opt                       { $$ = NODE(RANGE, @$, NULL, CHILDREN($1, $3, NULL)); }
 | opt ":" opt ":" expr              { $$ = NODE(RANGE, @$, NULL, CHILDREN($1, $3, $5)); }
 | "..."                             { $$ = NODE(ELLIPSIS, @$, NULL, NO_CHILDREN); } ;
opt: %empty                          { $$ = NULL; }
 | expr ;
atom: word                           { $$ = NODE(NAME, @$, $1, NO_CHILDREN); }
 | "forward()"                       { $$ = NODE(NAME, @$, intern(parser, "forward"), NO_CHILDREN); }
 | NUMBER
 | STRING                            { $$ = NODE(STRING, @$, NULL, NO_CHILDREN); $$->text = $1; }
 | "none"                            { $$ = NODE(NONE, @$, NULL, NO_CHILDREN); }
 | "true"                            { $$ = NODE(TRUE, @$, NULL, NO_CHILDREN); }
 | "false"                           { $$ = NODE(FALSE, @$, NULL, NO_CHILDREN); }
 | "(" expr ")"                      { $$ = $2; $$->flag = true; $$->span = @$; }
 | "[" items "]"                     { $$ = NODE_OF(LIST, @$, NULL, NULL, $2); }
 | "[" item "for" NAME "in" expr "]" { $$ = NODE(COMPREHENSION, @$, $4, CHILDREN($2, $6)); } ;
items: %empty                        { $$ = list_new(parser); }
 | items1 ;
items1: item                         { $$ = list_add(parser, list_new(parser), $1); }
 | items1 "," item                   { $$ = list_add(parser, $1, $3); } ;
item: expr
 | expr "as" STRING                  { $$ = NODE(PLACED, @$, NULL, CHILDREN($1)); $$->text = $3; } ;
/* `weight` begins a member and is also the usual name of a weight; it is the only keyword that may be a name. */
word: NAME
 | "weight"                          { $$ = intern(parser, "weight"); }
 | "train"                           { $$ = intern(parser, "train"); } ;
%%

/* bison calls this when its stack is exhausted; with `parse.error custom`, syntax errors go to the function below. */
static void tfm_yyerror(const SrcSpan *at, Parser *parser, const char *message) {
  (void)message;
  parser_stop(parser, *at, DIAG_NESTING, "too complex: 'if' and 'else', or powers of powers, are nested too deep");
}

/* Recovery is planned at once, so the next token that bison asks for while it unwinds is SYNC. */
static int yyreport_syntax_error(const yypcontext_t *context, Parser *parser) {
  int expected[YYNTOKENS];
  yysymbol_kind_t kinds[YYNTOKENS];
  int n = yypcontext_expected_tokens(context, kinds, YYNTOKENS);
  for (int i = 0; i < n; i++) expected[i] = (int)kinds[i];
  syntax_error_report(parser, (int)yypcontext_token(context), *yypcontext_location(context), expected, n);
  token_stream_recover(parser);
  return 0;
}

const char *token_name(int token) { return yysymbol_name((yysymbol_kind_t)token); }
