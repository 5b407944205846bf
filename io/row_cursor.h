// Which rows of a picture or volume have been handled, where they must come in order.
//
// Rows are counted through all planes: row = z * height + y. Misuse by the caller is
// Error(kInternal).
#pragma once

#include "io/box.h"

namespace tilery {

struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The rows that `box` covers: whole planes, or whole rows of one plane, inside `shape`.
RowRange RowsOfBox(const Box& box, const Index& shape);

class RowCursor {
 public:
  explicit RowCursor(const Index& shape) : shape_(shape) {}

  // For readers: `box` lies at or after the end of the previous one.
  RowRange Advance(const Box& box);
  // For writers: `box` starts exactly where the previous one ended.
  RowRange Continue(const Box& box);
  int64_t next() const { return next_; }
  int64_t rows() const { return shape_[0] * shape_[1]; }
  void RequireEnd() const;  // all rows seen

 private:
  Index shape_;
  int64_t next_ = 0;
};

}  // namespace tilery
