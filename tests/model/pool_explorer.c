/* What can happen in the pool: runtime/pool/pool.c itself, run with every order of its operations on atomics and
 * every value that C11 lets a load see.
 *
 * usage: pool_explorer SCENARIO...   a scenario is the number of threads of each run, as 3223; b behind it puts a
 * barrier into the middle of every run; :2 at its end leaves out executions in which more than two times a thread that
 * could have gone on has to wait for another.
 *
 * In: the scenarios, and the pool (POOL_C: its source), compiled into this program with the operations below in place
 * of those of stdatomic, pthread and futex. Out: a line for each scenario and exit code 0; or the first fault, with the operations that lead
 * to it, and exit code 1. A fault: no thread can go on, a run returns before all its threads have done their part, a
 * thread does not see what others wrote before it was let go.
 *
 * Threads are coroutines; each stops before an operation, and an explorer chooses who is next and which value is seen
 * (depth first, each execution from the beginning). Two executions that have led to the same state go on in the same
 * way, so the second ends there: a state is the stack of each thread, and the memory. Without optimization the stacks
 * hold little that is of no use any more.
 *
 * The memory is the usual operational form of C11. A word is a list of messages, in the order of modification; a thread
 * has a view: for each word, the last message that it must have seen. A release store puts the view of its thread into
 * its message, and an acquire load takes it from there. A sequentially consistent load sees none before the last
 * sequentially consistent store of its word. What other variables hold is part of the view as well: `written` counts
 * what each thread wrote for others. Left out: a store that goes before older ones in the order of modification, and
 * loads that see stores of the future; no word of the pool has two threads that store without reading first. A futex is
 * as weak as its manual allows: it compares any message that the thread may see, but who sleeps after a wake-up has
 * seen what the waker had. */
#define _GNU_SOURCE /* as the runtime is built */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

typedef enum Kind { START, LOAD, STORE, ADD, SLEEP, AWAKE, WAKE, JOIN } Kind;
static const char *const kind_names[] = {"begins",    "loads",    "stores", "adds to",
                                         "sleeps on", "wakes up", "wakes",  "joins"};

static uint64_t operate(Kind kind, const volatile void *word, size_t bytes, memory_order order, uint64_t number);
static int spawn(pthread_t *thread, void *(*function)(void *), void *argument);
static long call_futex(const void *word, int what, uint32_t value);

// ---- what the pool calls instead ----

#undef atomic_load_explicit
#undef atomic_load
#undef atomic_store_explicit
#undef atomic_store
#undef atomic_fetch_add_explicit
#undef atomic_fetch_add
#undef atomic_fetch_sub
#define atomic_load_explicit(word, order) operate(LOAD, word, sizeof *(word), order, 0)
#define atomic_load(word) atomic_load_explicit(word, memory_order_seq_cst)
#define atomic_store_explicit(word, number, order) (void)operate(STORE, word, sizeof *(word), order, (uint64_t)(number))
#define atomic_store(word, number) atomic_store_explicit(word, number, memory_order_seq_cst)
#define atomic_fetch_add_explicit(word, number, order) operate(ADD, word, sizeof *(word), order, (uint64_t)(number))
#define atomic_fetch_add(word, number) atomic_fetch_add_explicit(word, number, memory_order_seq_cst)
#define atomic_fetch_sub(word, number) atomic_fetch_add_explicit(word, -(uint64_t)(number), memory_order_seq_cst)
#define syscall(number, word, what, value, ...) call_futex(word, what, (uint32_t)(value))
#define pthread_create(thread, attributes, function, argument) spawn(thread, function, argument)
#define pthread_join(thread, result) (void)operate(JOIN, NULL, 0, memory_order_seq_cst, (uint64_t)(thread))
#define pthread_sigmask(how, set, old) (void)(set)
#define clock_gettime(clock, time) \
  (void)memset(time, 0, sizeof *(time)) /* with spin_ns 0 every look at it says: sleep */
#define mmap(...) MAP_FAILED
#pragma GCC push_options
#pragma GCC optimize(0)
#include POOL_C
#pragma GCC pop_options

static _Alignas(64) char memory_of_pool[4096];

void *allocate(const tfm_allocator *allocator, size_t bytes, size_t alignment) {
  (void)allocator, (void)alignment;
  return bytes <= sizeof memory_of_pool ? memset(memory_of_pool, 0, bytes) : NULL;
}
void release(const tfm_allocator *allocator, void *memory, size_t bytes) { (void)allocator, (void)memory, (void)bytes; }
int32_t cpus_available(void) { return 1; }
tfm_status tfm_succeed(tfm_error *error) { return (void)error, TFM_OK; }
tfm_status tfm_fail(tfm_error *error, tfm_status status, tfm_reason reason, const char *place, const char *format,
                    ...) {
  return (void)error, (void)reason, (void)place, (void)format, status;
}

// ---- the state ----

enum { MOST_THREADS = 4, WORDS = 6, MESSAGES = 64, MOST_STEPS = 1000, STACK = 16 << 10 };

static const struct {
  const char *name;
  size_t offset;
} words[WORDS] = {{"signal", offsetof(Pool, signal)},
                  {"sleeping", offsetof(Pool, sleeping)},
                  {"arrived", offsetof(Pool, arrived)},
                  {"phase", offsetof(Pool, phase)},
                  {"sleeping_inside", offsetof(Pool, sleeping_inside)},
                  {"stop", offsetof(Pool, stop)}};

typedef struct View {
  uint8_t seen[WORDS + MOST_THREADS]; /* of each word the number of a message; how often each thread has written */
} View;

typedef struct Word {
  int last, sequential; /* messages: the last; the last that was stored sequentially consistently */
  struct {
    uint64_t number;
    View view;
  } messages[MESSAGES];
} Word;

typedef struct Thread {
  bool exists, done;
  jmp_buf place;
  void *(*function)(void *);
  void *argument;
  View view;
  const char *top; /* of its stack, where it stopped */
  /* What it is about to do, or has done; asleep: SLEEP was done, and nobody has woken it. */
  Kind kind;
  bool asleep;
  int word, bytes;
  memory_order order;
  uint64_t number, result;
} Thread;

static Word memory[WORDS];
static View kernel; /* what sleepers see that wake-ups came before */
static uint8_t written[MOST_THREADS];
static Thread threads[MOST_THREADS];
static int self; /* the thread that runs */
static _Alignas(64) char stacks[MOST_THREADS][STACK];
static jmp_buf explorer;
static ucontext_t unused;
/* How threads load words: older messages matter only to those who may see them. It is learned: what was explored before
 * it was known is explored anew. */
typedef enum Look { NEVER, IN_ORDER /* sequentially consistent */, LOOSELY } Look;
static Look looks[MOST_THREADS][WORDS];
static bool new_looks;
static const char *fault, never_ends[] = "it does not end";

static void find(bool good, const char *text) {
  if (!good && !fault) fault = text;
}

static void join(View *view, const View *other) {
  for (size_t i = 0; i < sizeof view->seen; i++)
    if (other->seen[i] > view->seen[i]) view->seen[i] = other->seen[i];
}

static bool acquires(memory_order order) { return order != memory_order_relaxed && order != memory_order_release; }
static bool releases(memory_order order) { return order != memory_order_relaxed && order != memory_order_acquire; }

// ---- coroutines ----

/* Stops before an operation. A look right after a look at the same word is done without: what it sees later than the
 * first, the first may see as well, and spinning ends after some looks. */
static uint64_t operate(Kind kind, const volatile void *word, size_t bytes, memory_order order, uint64_t number) {
  Thread *thread = &threads[self];
  int place = 0;
  while (word && words[place].offset != (size_t)((const char *)word - memory_of_pool)) place++;
  if (kind == LOAD && thread->kind == LOAD && thread->word == place && thread->order == order) return thread->result;
  const Look look = kind != LOAD && kind != SLEEP ? NEVER : order == memory_order_seq_cst ? IN_ORDER : LOOSELY;
  if (word && look > looks[self][place]) looks[self][place] = look, new_looks = true;
  thread->kind = kind, thread->word = place, thread->bytes = (int)bytes, thread->order = order, thread->number = number;
  thread->top = __builtin_frame_address(0);
  if (!_setjmp(thread->place)) _longjmp(explorer, 1);
  return threads[self].result;
}

static long call_futex(const void *word, int what, uint32_t value) {
  return (long)operate(what == FUTEX_WAIT_PRIVATE ? SLEEP : WAKE, word, sizeof value, memory_order_relaxed, value);
}

static void run_thread(void) {
  threads[self].function(threads[self].argument);
  threads[self].done = true;
  _longjmp(explorer, 1);
}

/* Begins when it is chosen, and has seen what its maker has. */
static int spawn(pthread_t *number, void *(*function)(void *), void *argument) {
  int n = 0;
  while (threads[n].exists) n++;
  memset(stacks[n], 0, STACK);
  threads[n] = (Thread){
      .exists = true, .function = function, .argument = argument, .view = threads[self].view, .top = stacks[n] + STACK};
  *number = (pthread_t)n;
  return 0;
}

/* Until its next operation. */
static void go_on(int number) {
  self = number;
  if (_setjmp(explorer)) return;
  if (threads[self].kind != START) _longjmp(threads[self].place, 1);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack = (stack_t){.ss_sp = stacks[self], .ss_size = STACK};
  context.uc_link = &unused;
  makecontext(&context, run_thread, 0);
  setcontext(&context);
}

// ---- operations ----

/* The first message that the thread may see. */
static int first_message(const Thread *thread) {
  int first = thread->view.seen[thread->word];
  if (thread->kind == SLEEP && kernel.seen[thread->word] > first) first = kernel.seen[thread->word];
  if (thread->order == memory_order_seq_cst && memory[thread->word].sequential > first)
    first = memory[thread->word].sequential;
  return first;
}

/* In how many ways it can go on. */
static int ways_of(const Thread *thread) {
  if (!thread->exists || thread->done || thread->asleep) return 0;
  if (thread->kind == JOIN) return threads[thread->number].done;
  if (thread->kind != LOAD && thread->kind != SLEEP) return 1;
  return memory[thread->word].last - first_message(thread) + 1;
}

static void load(Thread *thread, int message) {
  thread->view.seen[thread->word] = (uint8_t)message;
  if (acquires(thread->order)) join(&thread->view, &memory[thread->word].messages[message].view);
  thread->result = memory[thread->word].messages[message].number;
}

/* `before`: what the message takes over from the one that was read and changed. */
static void store(Thread *thread, uint64_t number, const View *before) {
  Word *word = &memory[thread->word];
  if (word->last + 1 == MESSAGES) {
    find(false, never_ends);
    return;
  }
  word->last++;
  if (thread->bytes < 8) number &= (UINT64_C(1) << 8 * thread->bytes) - 1;
  thread->view.seen[thread->word] = (uint8_t)word->last;
  word->messages[word->last].number = number;
  word->messages[word->last].view = *before;
  if (releases(thread->order)) join(&word->messages[word->last].view, &thread->view);
  if (thread->order == memory_order_seq_cst) word->sequential = word->last;
}

static void wake(const Thread *waker) {
  join(&kernel, &waker->view);
  for (Thread *thread = threads; thread < threads + MOST_THREADS; thread++) {
    if (!thread->asleep || thread->word != waker->word) continue;
    thread->asleep = false;
    thread->kind = AWAKE;
    join(&thread->view, &kernel);
  }
}

static void perform(Thread *thread, int way) {
  const Word *word = &memory[thread->word];
  const View nothing = {{0}};
  switch (thread->kind) {
    case LOAD:
      load(thread, first_message(thread) + way);
      break;
    case STORE:
      store(thread, thread->number, &nothing);
      break;
    case ADD: {
      View before = word->messages[word->last].view;
      load(thread, word->last);
      store(thread, thread->result + thread->number, &before);
      break;
    }
    case SLEEP:
      load(thread, first_message(thread) + way);
      thread->asleep = (uint32_t)thread->result == thread->number;
      join(&thread->view, &kernel);
      break;
    case WAKE:
      wake(thread);
      break;
    case AWAKE:
      break;
    case JOIN:
      join(&thread->view, &threads[thread->number].view);
      break;
    case START:
      break;
  }
}

// ---- what is run ----

static const char *scenario;
static int most_interruptions;
static int run, parts[MOST_THREADS]; /* the last run whose part each thread has done */

#pragma GCC push_options
#pragma GCC optimize(0)
static void write_something(void) { threads[self].view.seen[WORDS + self] = ++written[self]; }
static bool sees(int other) { return threads[self].view.seen[WORDS + other] == written[other]; }

static void do_part(void *argument, PoolMember *member) {
  (void)argument;
  find(member->thread == self, "a part is done by another thread");
  find(parts[self] < run, "a part is done twice");
  find(sees(0), "a worker does not see what the caller wrote before the run");
  if (self) write_something();
  parts[self] = run;
  if (!strchr(scenario, 'b')) return;
  pool_barrier(member);
  for (int other = 0; other < member->active; other++)
    find(sees(other), "a thread does not see what another one wrote before the barrier");
}

static void *call(void *argument) {
  int n = 1;
  for (const char *c = scenario; *c >= '1' && *c <= '0' + MOST_THREADS; c++)
    if (*c - '0' > n) n = *c - '0';
  Pool *pool = pool_create(n, 0, &(tfm_allocator){0});
  for (run = 1; scenario[run - 1] >= '1' && scenario[run - 1] <= '9'; run++) {
    int active = scenario[run - 1] - '0';
    write_something();
    pool_run(pool, active, do_part, NULL);
    for (int i = 0; i < n; i++) find((parts[i] == run) == (i < active), "a run ends before its parts are done");
    for (int i = 0; i < n; i++) find(sees(i), "the caller does not see what a worker wrote in its part");
  }
  pool_destroy(pool);
  return argument;
}

#pragma GCC pop_options

// ---- every execution ----

static int path[MOST_STEPS], ways[MOST_STEPS], length; /* choices where there were several */
static uint64_t *states;
static size_t n_states, room;

static void mix(uint64_t *hash, uint64_t number) {
  *hash = (*hash ^ number) * UINT64_C(0x9E3779B97F4A7C15);
  *hash ^= *hash >> 29;
}

static void mix_bytes(uint64_t *hash, const void *bytes, size_t n) {
  for (size_t i = 0; i + 8 <= n; i += 8) {
    uint64_t number;
    memcpy(&number, (const char *)bytes + i, 8);
    mix(hash, number);
  }
}

static bool reads(const Thread *thread, size_t i) { return i >= WORDS || looks[thread - threads][i] == LOOSELY; }

/* What all threads have seen makes no difference any more. */
static void mix_view(uint64_t *hash, const View *view, const View *low) {
  uint64_t bytes[2] = {0};
  for (size_t i = 0; i < sizeof view->seen; i++)
    ((uint8_t *)bytes)[i] = view->seen[i] > low->seen[i] ? view->seen[i] - low->seen[i] : 0;
  mix(hash, bytes[0]), mix(hash, bytes[1]);
}

/* `more`: what else decides how it goes on. */
static uint64_t hash_of_state(int more) {
  uint64_t hash = (uint64_t)more + 1;
  View low;
  memset(&low, 255, sizeof low);
  for (const Thread *t = threads; t < threads + MOST_THREADS; t++)
    for (size_t i = 0; t->exists && !t->done && i < sizeof low.seen; i++)
      if (reads(t, i) && t->view.seen[i] < low.seen[i]) low.seen[i] = t->view.seen[i];
  for (int w = 0; w < WORDS; w++) {
    bool in_order = false;
    for (int t = 0; t < MOST_THREADS; t++) in_order |= looks[t][w] == IN_ORDER;
    int least = in_order ? memory[w].sequential : memory[w].last;
    if (low.seen[w] > least) low.seen[w] = (uint8_t)least;
  }
  for (const Thread *t = threads; t < threads + MOST_THREADS; t++) {
    if (!t->exists) continue;
    mix(&hash, (uint64_t)t->kind << 2 | (uint64_t)t->done << 1 | t->asleep);
    mix(&hash, t->number << 8 | (uint64_t)t->word);
    if (t->done) continue;
    mix_bytes(&hash, t->top, (size_t)(stacks[t - threads] + STACK - t->top));
    View view = t->view;
    for (size_t i = 0; i < WORDS; i++) view.seen[i] = reads(t, i) ? view.seen[i] : 0;
    mix_view(&hash, &view, &low);
  }
  for (int w = 0; w < WORDS; w++) {
    mix(&hash,
        (uint64_t)memory[w].last << 8 | (uint64_t)(memory[w].sequential > low.seen[w] ? memory[w].sequential : 0));
    for (int m = low.seen[w]; m <= memory[w].last; m++) {
      mix(&hash, memory[w].messages[m].number);
      mix_view(&hash, &memory[w].messages[m].view, &low);
    }
  }
  mix_view(&hash, &kernel, &low);
  mix_bytes(&hash, memory_of_pool, sizeof(Pool));
  mix(&hash, (uint64_t)run);
  mix_bytes(&hash, parts, sizeof parts);
  for (int t = 0; t < MOST_THREADS; t++) mix(&hash, written[t]);
  return hash ? hash : 1;
}

/* False: it was there. */
static bool add_state(uint64_t hash) {
  if (2 * n_states >= room) {
    uint64_t *old = states;
    size_t n = room;
    room = room ? 2 * room : 1 << 16;
    states = calloc(room, sizeof *states);
    n_states = 0;
    for (size_t i = 0; i < n; i++)
      if (old[i]) add_state(old[i]);
    free(old);
  }
  size_t i = hash & (room - 1);
  while (states[i] && states[i] != hash) i = (i + 1) & (room - 1);
  if (states[i]) return false;
  states[i] = hash;
  n_states++;
  return true;
}

static void begin(void) {
  memset(memory, 0, sizeof memory);
  memset(&kernel, 0, sizeof kernel);
  memset(written, 0, sizeof written);
  memset(threads, 0, sizeof threads);
  memset(parts, 0, sizeof parts);
  fault = NULL;
  spawn(&(pthread_t){0}, call, NULL);
}

static void print_step(const Thread *thread) {
  printf("  thread %d %s", (int)(thread - threads), kind_names[thread->kind]);
  if (thread->kind == LOAD || thread->kind == STORE || thread->kind == ADD || thread->kind == SLEEP ||
      thread->kind == WAKE)
    printf(" %s", words[thread->word].name);
  if (thread->kind == LOAD) printf(": %llx", (unsigned long long)thread->result);
  if (thread->kind == STORE || thread->kind == ADD) printf(", %lld", (long long)thread->number);
  puts(thread->asleep ? " and sleeps" : "");
}

/* What others do makes no difference to such an operation, nor it to others: it is done at once. */
static bool is_private(const Thread *thread) {
  return ways_of(thread) && (thread->kind == START || thread->kind == AWAKE || thread->kind == JOIN);
}

/* The threads among which there is a choice: [*first, *end), and in how many ways they can go on. */
static int find_choice(int last, int interruptions, int *first, int *end) {
  int n = 0;
  for (*first = 0; *first < MOST_THREADS; ++*first)
    if (is_private(&threads[*first])) return *end = *first + 1, 1;
  *first = ways_of(&threads[last]) && !interruptions ? last : 0;
  *end = *first || (ways_of(&threads[last]) && !interruptions) ? last + 1 : MOST_THREADS;
  for (int t = *first; t < *end; t++) n += ways_of(&threads[t]);
  return n;
}

/* One execution: the choices of `path`, then the first of each. It ends early in a state that was there before. */
static void execute(bool print) {
  int depth = 0, last = 0, interruptions = most_interruptions, first, end;
  begin();
  for (int steps = 0; !fault; steps++) {
    bool all_done = true;
    for (const Thread *t = threads; t < threads + MOST_THREADS; t++) all_done &= t->done || !t->exists;
    if (all_done) return;
    int n = find_choice(last, interruptions, &first, &end);
    find(n > 0, "no thread can go on");
    find(steps < MOST_STEPS, never_ends);
    if (fault) return;
    if (n > 1 && depth == length) {
      int more = ways_of(&threads[last]) ? last + 1 : 0;
      if (!add_state(hash_of_state(interruptions < 0 ? 0 : more + 8 * interruptions))) return;
      path[length] = 0, ways[length++] = n;
    }
    int way = n > 1 ? path[depth++] : 0;
    for (; way >= ways_of(&threads[first]); first++) way -= ways_of(&threads[first]);
    Thread *thread = &threads[first];
    if (interruptions > 0 && first != last && ways_of(&threads[last]) && !is_private(thread)) interruptions--;
    last = first;
    perform(thread, way);
    if (print) print_step(thread);
    if (!thread->asleep) go_on(first);
  }
}

static bool explore(void) {
  long executions = 0;
  memset(states, 0, room * sizeof *states);
  n_states = 0, length = 0;
  for (;;) {
    execute(false), executions++;
    if (new_looks) {
      memset(states, 0, room * sizeof *states);
      n_states = 0, length = 0, new_looks = false;
      continue;
    }
    if (fault) {
      printf("%s: %s, after %ld executions:\n", scenario, fault, executions);
      execute(true);
      return false;
    }
    while (length && path[length - 1] + 1 == ways[length - 1]) length--;
    if (!length) break;
    path[length - 1]++;
  }
  printf("%s: %ld executions, %zu states, no fault\n", scenario, executions, n_states);
  return true;
}

int main(int n, char **scenarios) {
  for (int i = 1; i < n; i++) {
    scenario = scenarios[i];
    const char *limit = strchr(scenario, ':');
    most_interruptions = limit ? atoi(limit + 1) : -1;
    if (!explore()) return 1;
  }
  return 0;
}
