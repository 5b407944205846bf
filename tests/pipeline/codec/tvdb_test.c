/* The C interface, from C. Makes its files in the folder it is run in. Ends with 1 and the line of
 * the first thing that is not as it should be. */
#include "pipeline/codec/tvdb.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/pipeline/codec/tvdb_sample.h"

#define EXPECT(what)                                                                       \
  do {                                                                                     \
    if (!(what)) {                                                                         \
      fprintf(stderr, "line %d: %s\nlast message: %s\n", __LINE__, #what, tvdb_message()); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

static int Same(const char* a, const char* b) { return strcmp(a, b) == 0; }
static int Says(const char* words) { return strstr(tvdb_message(), words) != NULL; }

static float Value(int64_t x, int64_t y, int64_t z) { return (float)(x + 10 * y + 100 * z); }
static int InLeaf(int64_t x, int64_t y, int64_t z, int64_t x0, int64_t y0, int64_t z0) {
  return x >= x0 && x < x0 + 8 && y >= y0 && y < y0 + 8 && z >= z0 && z < z0 + 8;
}

/* What the sample has at a place of "density". */
static float Density(int64_t x, int64_t y, int64_t z, int* active) {
  *active = (x + y + z) % 2 == 0;
  if (InLeaf(x, y, z, -8, -8, -8) || InLeaf(x, y, z, 256, 0, 0)) return Value(x, y, z);
  *active = 1;
  if (InLeaf(x, y, z, 8, 8, 8)) return 3;
  if (x >= 4096 && x < 8192 && y >= 0 && y < 4096 && z >= 0 && z < 4096) return 5;
  *active = 0;
  if (x >= 128 && x < 256 && y >= 0 && y < 128 && z >= 0 && z < 128) return 4;
  return 0.5f;
}

static void ExpectBox(const tvdb_file* file, size_t grid, const int64_t begin[3],
                      const int64_t end[3]) {
  const int64_t nx = end[0] - begin[0], ny = end[1] - begin[1], nz = end[2] - begin[2];
  const size_t voxels = (size_t)(nx * ny * nz);
  float* const values = malloc(voxels * sizeof *values);
  double* const wide = malloc(voxels * sizeof *wide);
  uint8_t* const active = malloc(voxels);
  int64_t x, y, z;
  EXPECT(values != NULL && wide != NULL && active != NULL);
  EXPECT(tvdb_read_f32(file, grid, begin, end, values, voxels, active) == TVDB_OK);
  EXPECT(tvdb_read_f64(file, grid, begin, end, wide, voxels, NULL) == TVDB_OK);
  for (x = 0; x < nx; ++x) {
    for (y = 0; y < ny; ++y) {
      for (z = 0; z < nz; ++z) {
        const size_t at = (size_t)((x * ny + y) * nz + z);
        int on;
        EXPECT(values[at] == Density(x + begin[0], y + begin[1], z + begin[2], &on));
        EXPECT(wide[at] == values[at] && active[at] == on);
      }
    }
  }
  free(values);
  free(wide);
  free(active);
}

static void TestInfo(const tvdb_file* file) {
  tvdb_info info;
  tvdb_entry entry;
  size_t grid = 99;
  EXPECT(tvdb_grid_count(file) == 4);
  EXPECT(tvdb_find(file, "velocity", &grid) == TVDB_OK && grid == 1);
  EXPECT(tvdb_find(file, "speed", &grid) == TVDB_NOT_FOUND && grid == 1);
  EXPECT(Says("'speed'") && Says("density, velocity, again, mask"));

  EXPECT(tvdb_grid_info(file, 0, &info) == TVDB_OK);
  EXPECT(Same(info.label, "density") && Same(info.name, "density") && Same(info.type, "float"));
  EXPECT(Same(info.grid_class, "fog volume") && info.tree == 0);
  EXPECT(info.number == TVDB_F32 && info.components == 1 && info.half == 0);
  EXPECT(info.background[0] == 0.5 && info.background[1] == 0);
  EXPECT(Same(info.map, "UniformScaleMap") && info.has_matrix);
  EXPECT(info.index_to_world[0][0] == 0.25 && info.index_to_world[1][0] == 0);
  EXPECT(info.index_to_world[3][3] == 1 && info.index_to_world[0][3] == 0);
  EXPECT(info.bound == 0 && info.step == 0 && info.max_error == 0 && info.rms == 0);
  EXPECT(isinf(info.psnr) && info.numbers == 512 && info.bytes > 0);
  EXPECT(info.least == Value(-8, -8, -8) && info.most == Value(263, 7, 7) - 1);
  EXPECT(info.regions == 3 && info.leaves_begin[0] == -128 && info.leaves_end[0] == 384);
  EXPECT(info.leaves_begin[2] == -128 && info.leaves_end[2] == 128);
  EXPECT(info.active_voxels == -1 && info.active_begin[0] == info.active_end[0]);

  EXPECT(tvdb_grid_info(file, 1, &info) == TVDB_OK);
  EXPECT(Same(info.type, "vec3d") && info.number == TVDB_F64 && info.components == 3);
  EXPECT(Same(info.grid_class, "unknown") && info.regions == 1);
  EXPECT(tvdb_grid_info(file, 2, &info) == TVDB_OK);
  EXPECT(Same(info.label, "again") && info.tree == 0 && info.number == TVDB_F32);
  EXPECT(tvdb_grid_info(file, 3, &info) == TVDB_OK);
  EXPECT(Same(info.type, "bool") && info.number == TVDB_NONE && info.components == 0);
  EXPECT(tvdb_grid_info(file, 4, &info) == TVDB_ARGUMENT && Says("no grid 4"));

  EXPECT(tvdb_metadata(file, 0, 1, &entry) == TVDB_OK);
  EXPECT(Same(entry.name, "artist") && Same(entry.type, "string") && entry.bytes == 8);
  EXPECT(memcmp(entry.value, "somebody", 8) == 0);
  EXPECT(tvdb_metadata(file, 0, 2, &entry) == TVDB_END);
  EXPECT(tvdb_metadata(file, TVDB_WHOLE_FILE, 0, &entry) == TVDB_OK && Same(entry.name, "shot"));
  EXPECT(tvdb_metadata(file, TVDB_WHOLE_FILE, 1, &entry) == TVDB_END);
}

static void TestBoxes(const tvdb_file* file) {
  const int64_t boxes[][2][3] = {
      {{-8, -8, -8}, {0, 0, 0}},           /* a leaf */
      {{-7, -5, -3}, {-6, -4, -2}},        /* a voxel of it */
      {{-20, -20, -20}, {20, 20, 20}},     /* over the corner, with a small tile */
      {{120, -3, 5}, {136, 4, 9}},         /* into a tile that is not active */
      {{250, -2, 3}, {270, 10, 20}},       /* from that tile into a leaf */
      {{4090, 4090, -1}, {4100, 4100, 2}}, /* beside a tile of the root */
      {{8190, 0, 4000}, {8194, 2, 4002}},  /* out of it */
      {{-5000, 0, 0}, {-4998, 1, 3}},      /* where nothing is */
      {{INT32_MAX - 2, 7, 7}, {(int64_t)INT32_MAX + 3, 8, 8}},
      {{(int64_t)INT32_MIN - 3, 7, 7}, {INT32_MIN + 2, 8, 8}},
      {{INT64_MAX - 2, INT64_MIN, 0}, {INT64_MAX, INT64_MIN + 2, 1}}};
  const int64_t begin[3] = {-8, -8, -8}, end[3] = {-6, -6, -6}, empty[3] = {-8, 0, 0};
  const int64_t least[3] = {INT64_MIN, INT64_MIN, INT64_MIN};
  const int64_t most[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
  double vectors[24];
  float few[8];
  uint8_t active[8];
  size_t i;
  int on;
  for (i = 0; i < sizeof boxes / sizeof boxes[0]; ++i) {
    ExpectBox(file, 0, boxes[i][0], boxes[i][1]);
    ExpectBox(file, 2, boxes[i][0], boxes[i][1]);
  }
  EXPECT(tvdb_read_f64(file, 1, begin, end, vectors, 24, active) == TVDB_OK);
  for (i = 0; i < 8; ++i) {
    const double value =
        Density(-8 + (int64_t)(i / 4), -8 + (int64_t)(i / 2 % 2), -8 + (int64_t)(i % 2), &on);
    EXPECT(vectors[3 * i] == value && vectors[3 * i + 1] == -value);
    EXPECT(vectors[3 * i + 2] == value / 3 && active[i] == 1);
  }
  EXPECT(tvdb_read_f64(file, 1, begin, end, vectors, 23, active) == TVDB_ARGUMENT && Says("23"));
  EXPECT(tvdb_read_f32(file, 0, begin, end, few, 7, NULL) == TVDB_ARGUMENT);
  EXPECT(tvdb_read_f32(file, 0, least, most, few, 8, NULL) == TVDB_ARGUMENT);
  EXPECT(tvdb_read_f32(file, 0, begin, empty, NULL, 0, NULL) == TVDB_OK);
  EXPECT(tvdb_read_f32(file, 0, end, begin, NULL, 0, NULL) == TVDB_OK);
  EXPECT(tvdb_read_f32(file, 0, begin, end, NULL, 8, NULL) == TVDB_ARGUMENT);
  EXPECT(tvdb_read_f32(file, 0, NULL, end, few, 8, NULL) == TVDB_ARGUMENT);
  EXPECT(tvdb_read_f32(file, 3, begin, end, few, 8, NULL) == TVDB_NOT_CODED);
  EXPECT(Says("'mask'") && Says("bool") && Says("decompress"));
  EXPECT(tvdb_read_f32(NULL, 0, begin, end, few, 8, NULL) == TVDB_ARGUMENT);
}

static void TestLeaves(const tvdb_file* file) {
  tvdb_leaves* leaves = NULL;
  tvdb_leaf leaf;
  int count = 0, i;
  EXPECT(tvdb_leaves_open(file, 3, &leaves) == TVDB_NOT_CODED && leaves == NULL);
  EXPECT(tvdb_leaves_open(file, 2, &leaves) == TVDB_OK);
  for (; tvdb_leaves_next(leaves, &leaf) == TVDB_OK; ++count) {
    EXPECT(leaf.origin[0] == (count == 0 ? -8 : 256) && leaf.origin[2] == (count == 0 ? -8 : 0));
    EXPECT(leaf.f32 != NULL && leaf.f64 == NULL);
    for (i = 0; i < 512; ++i) {
      const int x = i / 64, y = i / 8 % 8, z = i % 8;
      int on;
      EXPECT(leaf.f32[i] ==
             Density(leaf.origin[0] + x, leaf.origin[1] + y, leaf.origin[2] + z, &on));
      EXPECT((int)(leaf.active[x] >> (8 * y + z) & 1) == on);
    }
  }
  EXPECT(count == 2 && tvdb_leaves_next(leaves, &leaf) == TVDB_END);
  tvdb_leaves_close(leaves);
  EXPECT(tvdb_leaves_open(file, 1, &leaves) == TVDB_OK);
  EXPECT(tvdb_leaves_next(leaves, &leaf) == TVDB_OK && leaf.f32 == NULL);
  EXPECT(leaf.f64[3 * 511] == Value(-1, -1, -1) && leaf.active[7] == UINT64_MAX);
  tvdb_leaves_close(leaves); /* before the end */
  tvdb_leaves_close(NULL);
}

/* Every byte that is missing or wrong is noticed, at the latest where it is read. */
static void TestDamage(const char* path, const char* bad) {
  static unsigned char bytes[1 << 16];
  size_t size, cut, i, unseen = 0;
  FILE* stream = fopen(path, "rb");
  EXPECT(stream != NULL);
  size = fread(bytes, 1, sizeof bytes, stream);
  fclose(stream);
  EXPECT(size > 100 && size < sizeof bytes);
  for (cut = 0; cut < 2; ++cut) {
    for (i = 0; i < size; i += 17) {
      tvdb_file* file = NULL;
      tvdb_leaves* leaves = NULL;
      tvdb_leaf leaf;
      size_t grid;
      int fault = 0;
      stream = fopen(bad, "wb");
      EXPECT(stream != NULL);
      if (cut == 0) bytes[i] ^= 0x10;
      fwrite(bytes, 1, cut == 0 ? size : i, stream);
      if (cut == 0) bytes[i] ^= 0x10;
      fclose(stream);
      if (tvdb_open(bad, &file) != TVDB_OK) {
        EXPECT(file == NULL && Says(bad));
        continue;
      }
      EXPECT(cut == 0);
      for (grid = 0; grid < 3; ++grid) {
        tvdb_code code;
        EXPECT(tvdb_leaves_open(file, grid, &leaves) == TVDB_OK);
        while ((code = tvdb_leaves_next(leaves, &leaf)) != TVDB_END) {
          EXPECT(code == TVDB_OK || (code == TVDB_BAD_FILE && Says(bad)));
          fault |= code != TVDB_OK;
        }
        tvdb_leaves_close(leaves);
      }
      unseen += fault ? 0 : 1;
      tvdb_close(file);
    }
  }
  EXPECT(unseen < 6); /* those of the grid that is passed on, which was not read */
}

int main(void) {
  tvdb_file* file = NULL;
  EXPECT(Same(tvdb_message(), ""));
  EXPECT(WriteTvdbSample("sample.tvdb") == 0);
  EXPECT(tvdb_open("nowhere.tvdb", &file) == TVDB_BAD_FILE && Says("nowhere.tvdb"));
  EXPECT(tvdb_open("sample.tvdb.vdb", &file) == TVDB_BAD_FILE && Says("no .tvdb file"));
  EXPECT(tvdb_open(NULL, &file) == TVDB_ARGUMENT && file == NULL);
  EXPECT(tvdb_open("sample.tvdb", NULL) == TVDB_ARGUMENT);
  EXPECT(tvdb_open("sample.tvdb", &file) == TVDB_OK);
  TestInfo(file);
  TestBoxes(file);
  TestLeaves(file);
  tvdb_close(file);
  tvdb_close(NULL);
  TestDamage("sample.tvdb", "bad.tvdb");
  return 0;
}
