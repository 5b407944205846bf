/* A small .tvdb file for tests of its readers, in C and C++. */
#ifndef TESTS_PIPELINE_CODEC_TVDB_SAMPLE_H_
#define TESTS_PIPELINE_CODEC_TVDB_SAMPLE_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Grids, all exact:
 *   0 "density"   float, background 0.5, a voxel is 0.25. A leaf at each of (-8, -8, -8) and
 *                 (256, 0, 0), in which the value is x + 10 y + 100 z, active where x + y + z is
 *                 even. Tiles: (8, 8, 8), edge 8, 3, active; (128, 0, 0), edge 128, 4, not active;
 *                 (4096, 0, 0), edge 4096, 5, active.
 *   1 "velocity"  vec3d: the leaf at (-8, -8, -8), all active, with the value above, its negative,
 *                 and a third of it.
 *   2 "again"     shares the tree of "density".
 *   3 "mask"      of a type that is passed on.
 * Metadata: "shot" of the file, "artist" of "density".
 *
 * 0, or 1 if it can't be written. */
int WriteTvdbSample(const char* path);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_PIPELINE_CODEC_TVDB_SAMPLE_H_ */
