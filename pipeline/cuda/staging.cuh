// How a warp writes a run of bytes that its lanes made piecewise: through shared memory, then in
// whole words of 16 bytes. Lanes that wrote their few bytes each straight to memory would touch
// every sector several times.
//
// Bytes are staged at their place within the 16-byte words of the target, so that words match.
#pragma once

#include <cstdint>
#include <cstring>

#include "pipeline/formulas.h"

namespace tilery::cuda {

inline constexpr int kLanes = 32;  // of a warp
inline constexpr int kWord = 16;   // bytes

// Memory that a warp needs to stage `bytes`.
TILERY_HD int64_t StagingBytes(int64_t bytes) { return (bytes + kWord + 127) / 128 * 128; }

// Words that lie 128 bytes apart share banks of shared memory; values of lanes often do. The order
// of words within 128 bytes differs from one to the next, so that they spread.
TILERY_HD int Swizzled(int byte) { return byte ^ (((byte >> 7) & 7) << 4); }

// Of values at `to`: their first byte's place within a word.
TILERY_HD int StagingOffset(const void* to) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(to) & (kWord - 1));
}

template <typename T>
TILERY_HD void Stage(char* staged, int byte, T value) {
  memcpy(__builtin_assume_aligned(staged + Swizzled(byte), sizeof(T)), &value, sizeof(T));
}

struct alignas(kWord) StagedWord {
  uint32_t part[4];
};

// One lane's share of copying `bytes` staged from `offset` on to `to`, once all lanes have staged.
TILERY_HD void CopyStaged(const char* staged, int offset, int bytes, char* to, int lane) {
  const int end = offset + bytes;
  char* origin = to - offset;
  for (int at = lane * kWord; at < end; at += kLanes * kWord) {
    const char* from = staged + Swizzled(at);
    if (at >= offset && at + kWord <= end) {
      *reinterpret_cast<StagedWord*>(origin + at) = *reinterpret_cast<const StagedWord*>(from);
      continue;
    }
    const int first = at < offset ? offset - at : 0, last = end - at < kWord ? end - at : kWord;
    for (int byte = first; byte < last; ++byte) origin[at + byte] = from[byte];
  }
}

// The same for `rows` runs of `bytes` each, staged one after another from 0 on, that go `pitch`
// bytes apart.
TILERY_HD void CopyStagedRows(const char* staged, int bytes, int rows, char* to, int64_t pitch,
                              int lane) {
  if (bytes % kWord == 0 && pitch % kWord == 0 && StagingOffset(to) == 0) {
    const int words = bytes / kWord;
    for (int i = lane; i < rows * words; i += kLanes) {
      const int row = i / words;
      *reinterpret_cast<StagedWord*>(to + row * pitch + (i - row * words) * kWord) =
          *reinterpret_cast<const StagedWord*>(staged + Swizzled(i * kWord));
    }
    return;
  }
  for (int i = lane; i < rows * bytes; i += kLanes) {
    const int row = i / bytes;
    to[row * pitch + i - row * bytes] = staged[Swizzled(i)];
  }
}

}  // namespace tilery::cuda
