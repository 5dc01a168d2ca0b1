/* Loads exports as a server does, without Python, and asks them of texts.

   serve [LIBRARY ...]

   Each LIBRARY brings operations. A request is a line of standard input, with
   tabs between MODEL, TEXTS, VECTORS, INPUTS, OUTPUT and INDEX; a line of
   standard output answers it. MODEL is a version's folder, INPUTS and OUTPUT
   are the operations of a signature and INDEX which output of the latter.
   INPUTS are one or more with commas between; TEXTS.0 holds what
   test_serving.py's write_texts wrote for the first of them, TEXTS.1 for the
   second. An input that has more texts than the first is a matrix of as many
   rows. VECTORS gets two int64, rows and width, and then the rows in
   float32; the width is the product of all axes behind the first. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static void check(TF_Status *status, const char *what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

static void *fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static uint64_t number(FILE *file) {
  uint64_t value;
  if (fread(&value, sizeof value, 1, file) != 1) fail("TEXTS is cut");
  return value;
}

static TF_Tensor *read_texts(const char *texts_of, int which, int64_t *rows) {
  char path[4096];
  snprintf(path, sizeof path, "%s.%d", texts_of, which);
  FILE *file = fopen(path, "rb");
  if (!file) fail("TEXTS cannot be read");
  int64_t count = (int64_t)number(file);
  if (which == 0) *rows = count;
  int64_t shape[] = {*rows, *rows ? count / *rows : 0};
  TF_Tensor *tensor = TF_AllocateTensor(
      TF_STRING, shape, count == *rows ? 1 : 2, count * sizeof(TF_TString));
  TF_TString *texts = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; ++i) {
    size_t size = number(file);
    char *bytes = malloc(size + 1);
    if (fread(bytes, 1, size, file) != size) fail("TEXTS is cut");
    TF_TString_Init(&texts[i]);
    TF_TString_Copy(&texts[i], bytes, size);
    free(bytes);
  }
  fclose(file);
  return tensor;
}

enum { INPUTS = 8, FIELDS = 6 };

static TF_Output find(TF_Graph *graph, const char *name, int index) {
  TF_Output output = {TF_GraphOperationByName(graph, name), index};
  if (!output.oper) fail("INPUTS or OUTPUT is not in the graph");
  return output;
}

static void answer(char **fields, TF_Status *status) {
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, fields[0], tags, 1, graph, NULL, status);
  check(status, "loading");

  TF_Output inputs[INPUTS], output = find(graph, fields[4], atoi(fields[5]));
  TF_Tensor *texts[INPUTS], *vectors = NULL;
  int count = 0;
  int64_t rows = 0;
  for (char *name = strtok(fields[3], ","); name; name = strtok(NULL, ",")) {
    if (count == INPUTS) fail("there are too many INPUTS");
    inputs[count] = find(graph, name, 0);
    texts[count] = read_texts(fields[1], count, &rows);
    ++count;
  }
  TF_SessionRun(session, NULL, inputs, texts, count, &output, &vectors, 1,
                NULL, 0, NULL, status);
  check(status, "running");

  int axes = TF_NumDims(vectors);
  if (TF_TensorType(vectors) != TF_FLOAT || axes < 1)
    fail("the output is no array of float32");
  int64_t shape[] = {TF_Dim(vectors, 0), 1};
  for (int axis = 1; axis < axes; ++axis) shape[1] *= TF_Dim(vectors, axis);
  FILE *file = fopen(fields[2], "wb");
  if (!file) fail("VECTORS cannot be written");
  size_t size = (size_t)(shape[0] * shape[1]);
  if (fwrite(shape, sizeof shape, 1, file) != 1 ||
      fwrite(TF_TensorData(vectors), sizeof(float), size, file) != size ||
      fclose(file))
    fail("VECTORS cannot be written");
  TF_DeleteTensor(vectors);
  while (count) TF_DeleteTensor(texts[--count]);
  TF_DeleteSession(session, status);
  check(status, "closing");
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  printf("%lld x %lld\n", (long long)shape[0], (long long)shape[1]);
  fflush(stdout);
}

int main(int argc, char **argv) {
  TF_Status *status = TF_NewStatus();
  for (int i = 1; i < argc; ++i) {
    TF_LoadLibrary(argv[i], status);
    check(status, argv[i]);
  }
  char line[16384];
  while (fgets(line, sizeof line, stdin)) {
    char *fields[FIELDS], *field = strtok(line, "\t\n");
    for (int i = 0; i < FIELDS; ++i, field = strtok(NULL, "\t\n"))
      if (!(fields[i] = field)) fail("MODEL TEXTS VECTORS INPUTS OUTPUT INDEX");
    answer(fields, status);
  }
  return 0;
}
