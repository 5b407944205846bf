/* Reads .tvdb files, which hold compressed OpenVDB grids. For C99 and C++; link with -ltvdb.
 *
 *   tvdb_file* file;
 *   size_t grid;
 *   if (tvdb_open("smoke.tvdb", &file) != TVDB_OK) return puts(tvdb_message());
 *   if (tvdb_find(file, "density", &grid) == TVDB_OK) ...
 *   tvdb_close(file);
 *
 * Coordinates are x, y, z of a grid's index space, in voxels; they may be negative. Boxes are
 * half-open: [begin, end). Values are in the grid's own units, errors and bounds as well.
 *
 * Every function that returns a tvdb_code writes its results only on TVDB_OK, unless it says
 * otherwise. A damaged file gives an error, at the latest where the damaged part is read, and
 * never a wrong value; damage elsewhere does no harm.
 *
 * Threads may use one file at the same time; only tvdb_close must come last. Of a tvdb_leaves only
 * one at a time. What a file hands out (names, texts) belongs to it and lives until tvdb_close.
 */
#ifndef TVDB_H
#define TVDB_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TVDB_API __attribute__((visibility("default")))
#else
#define TVDB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tvdb_code {
  TVDB_OK = 0,
  TVDB_END = 1,       /* there are no more */
  TVDB_ARGUMENT = 2,  /* a null pointer, no such grid, a box that is too large for the memory */
  TVDB_NOT_FOUND = 3, /* no grid, or several, of that name */
  TVDB_BAD_FILE = 4,  /* it is not there, can't be read, is of another version, or is damaged */
  TVDB_NOT_CODED = 5, /* a grid of integers, bool, strings or points, which is passed on packed */
  TVDB_SHORTAGE = 6,  /* of memory or descriptors, or a network file system fails */
  TVDB_INTERNAL = 7   /* a fault of this library */
} tvdb_code;

/* What the last function that failed on this thread has to say; until the next one fails. */
TVDB_API const char* tvdb_message(void);

/* ---- files ---- */

typedef struct tvdb_file tvdb_file;

/* Reads index and descriptions, no voxels. Memory: these; later up to 256 MiB of what was decoded
 * last, and 64 MiB of upper nodes. */
TVDB_API tvdb_code tvdb_open(const char* path, tvdb_file** file);
TVDB_API void tvdb_close(tvdb_file* file); /* null: nothing */

/* Grids count from 0, in the order of the OpenVDB file. */
TVDB_API size_t tvdb_grid_count(const tvdb_file* file);
/* By its label: the name, or NAME[0], NAME[1], ... where several have it. */
TVDB_API tvdb_code tvdb_find(const tvdb_file* file, const char* label, size_t* grid);

/* ---- what is said of grids ---- */

typedef enum tvdb_number { TVDB_NONE = 0, TVDB_F32 = 1, TVDB_F64 = 2 } tvdb_number;

typedef struct tvdb_info {
  const char* label;
  const char* name;       /* may be empty, and several grids may have the same */
  const char* type;       /* of values, as OpenVDB calls it: "float", "vec3s", "bool" */
  const char* grid_class; /* "fog volume", "level set", "staggered", "unknown" */
  size_t tree;            /* the grid whose tree it shares; else itself */
  tvdb_number number;     /* TVDB_NONE: it can't be read here (TVDB_NOT_CODED) */
  int components;         /* 1, or 3 for vectors; 0 with TVDB_NONE */
  int half;               /* 1: values are such as 16 bits hold */
  double background[3];

  /* Rows of a matrix that takes (x, y, z, 1) to the world: world = m (x, y, z, 1). */
  const char* map; /* OpenVDB's name: "UniformScaleMap" */
  int has_matrix;  /* 0: not linear (a frustum) */
  double index_to_world[4][4];

  /* How far finite active values in leaves are from the original's. Tiles are exact. */
  double bound;       /* that was asked for; 0: exact */
  double step;        /* in which values are told; 0: exact */
  double least, most; /* of the original's finite active values, tiles included; 0 if none */
  double max_error;   /* achieved, as the next two */
  double rms;         /* root of the mean square */
  double psnr;        /* 20 log10((most - least) / rms), in dB; infinite without an error */
  int64_t numbers;    /* that these count, each component for itself */

  int64_t bytes;   /* in the file */
  int64_t regions; /* of 128^3 voxels that have leaves */
  /* A box around them, and so around all leaves; empty if there are none. Tiles may lie beyond. */
  int64_t leaves_begin[3], leaves_end[3];
  /* By what OpenVDB noted when it wrote the file; -1, and an empty box, if it did not. */
  int64_t active_voxels;
  int64_t active_begin[3], active_end[3];
} tvdb_info;

TVDB_API tvdb_code tvdb_grid_info(const tvdb_file* file, size_t grid, tvdb_info* info);

/* One entry of metadata. `value`: its bytes as OpenVDB writes them (little-endian; a "string" is
 * its bytes, "vec3d" three doubles). */
typedef struct tvdb_entry {
  const char* name;
  const char* type;
  const void* value;
  size_t bytes;
} tvdb_entry;

#define TVDB_WHOLE_FILE ((size_t)-1)
/* The entry `index` from 0 of a grid or, with TVDB_WHOLE_FILE, of the file. TVDB_END after the last
 * one. */
TVDB_API tvdb_code tvdb_metadata(const tvdb_file* file, size_t grid, size_t index,
                                 tvdb_entry* entry);

/* ---- boxes ---- */

/* Reads the value of each voxel of a box, active or not: tiles and the background where there are
 * no leaves. Decodes the regions that the box touches and no others.
 *
 * values[((x * ny + y) * nz + z) * components + c], with x, y, z counted from `begin`, and
 * ny = end[1] - begin[1], nz = end[2] - begin[2]. `capacity`: numbers that `values` has room for.
 * `active`: null, or nx * ny * nz bytes in the order of the voxels, each 1 or 0. An empty box reads
 * nothing. After an error the memory may hold anything.
 *
 * Doubles are rounded to float by tvdb_read_f32, all else is exact. */
TVDB_API tvdb_code tvdb_read_f32(const tvdb_file* file, size_t grid, const int64_t begin[3],
                                 const int64_t end[3], float* values, size_t capacity,
                                 uint8_t* active);
TVDB_API tvdb_code tvdb_read_f64(const tvdb_file* file, size_t grid, const int64_t begin[3],
                                 const int64_t end[3], double* values, size_t capacity,
                                 uint8_t* active);

/* ---- leaves ---- */

/* A leaf has 8^3 voxels; voxel (x * 8 + y) * 8 + z. What it points to lives until the next call for
 * the same tvdb_leaves. */
typedef struct tvdb_leaf {
  int32_t origin[3];
  uint64_t active[8]; /* bit y * 8 + z of active[x] */
  /* 512 * components, component by component of each voxel, active or not: one of the two. */
  const float* f32;  /* with TVDB_F32, else null */
  const double* f64; /* with TVDB_F64, else null */
} tvdb_leaf;

typedef struct tvdb_leaves tvdb_leaves;

/* Walks the leaves of a grid in the order of the OpenVDB file, one region of 128^3 voxels in memory
 * at a time. The file must not be closed before. */
TVDB_API tvdb_code tvdb_leaves_open(const tvdb_file* file, size_t grid, tvdb_leaves** leaves);
/* TVDB_END after the last one. After TVDB_BAD_FILE the next call goes on with the next region. */
TVDB_API tvdb_code tvdb_leaves_next(tvdb_leaves* leaves, tvdb_leaf* leaf);
TVDB_API void tvdb_leaves_close(tvdb_leaves* leaves); /* null: nothing */

#ifdef __cplusplus
}
#endif

#endif /* TVDB_H */
