/* tfmc._core.Pool: threads that the contexts of several models take turns to use.
 *
 * In: a number of threads, 0 for as many as the process may use. The threads begin with the first model that needs
 * them, and begin anew in the child of a fork, where those of the parent do not exist: their memory stays behind
 * there, because ending them would wait for ever. */
#include "core.h"

tfm_pool *pool_get(PoolObject *pool) {
  if (pool->pool && pool->generation == shared.generation) return pool->pool;
  tfm_error error;
  pool->pool = NULL;
  pool->generation = shared.generation;
  if (tfm_pool_create(pool->threads, &pool->pool, &error)) raise_error(&error);
  return pool->pool;
}

static PyObject *create(PyTypeObject *type, int threads) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  PoolObject *pool = (PoolObject *)allocate(type, 0);
  if (pool) pool->threads = threads;
  return (PyObject *)pool;
}

PoolObject *pool_new(int threads) { return (PoolObject *)create(shared.pool_type, threads); }

static PyObject *new_pool(PyTypeObject *type, PyObject *args, PyObject *named) {
  static char *names[] = {"threads", NULL};
  PyObject *given = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, named, "|O:Pool", names, &given)) return NULL;
  long threads = given == Py_None ? 0 : PyLong_AsLong(given);
  if (threads == -1 && PyErr_Occurred()) return NULL;
  if (threads < 0 || threads > 1024) return raise_status(TFM_E_USAGE, "threads is %ld, not 1 to 1024", threads);
  return create(type, (int)threads);
}

static void drop(PyObject *self) {
  PoolObject *pool = (PoolObject *)self;
  PyTypeObject *type = Py_TYPE(self);
  if (pool->generation == shared.generation) tfm_pool_destroy(pool->pool);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject *get_threads(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLong(((PoolObject *)self)->threads);
}

static PyGetSetDef members[] = {{"threads", get_threads, NULL, "Threads, 0: all that the process may use.", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_doc, "Threads that several models share: Pool(threads=None)."},
                              {Py_tp_new, (void *)new_pool},
                              {Py_tp_dealloc, (void *)drop},
                              {Py_tp_getset, members},
                              {0, NULL}};
PyType_Spec pool_spec = {"tfmc.Pool", sizeof(PoolObject), 0, Py_TPFLAGS_DEFAULT, slots};
