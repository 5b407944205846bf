// Damages .tvdb files as no disk would: checksums and sizes are right again afterwards, so that
// what is behind them has to cope.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "io/tvdb_file.h"

namespace tilery {

// A .tvdb file in parts. What its index says of places, sizes and checksums does not count.
struct TvdbParts {
  struct Piece {
    uint32_t kind = 0, grid = 0;
    std::array<int32_t, 3> origin{};
    std::string bytes;
  };
  std::vector<Piece> pieces;

  std::string Together() const;  // a file with right checksums
};
// False if there is no index to go by.
bool TakeApart(const std::string& content, TvdbParts* parts);

// Something is different; mostly in one piece, at times in the index, or without right checksums.
// The same for the same state of `random`. At most `most` bytes.
std::string MutateTvdb(const std::string& content, size_t most, std::mt19937& random);

}  // namespace tilery
