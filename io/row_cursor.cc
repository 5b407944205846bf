#include "io/row_cursor.h"

#include "io/error.h"

namespace tilery {

RowRange RowsOfBox(const Box& box, const Index& shape) {
  const bool inside = Box::Whole(shape).contains(box) && !box.empty();
  const bool whole_rows = box.begin[2] == 0 && box.end[2] == shape[2];
  const bool whole_planes = box.begin[1] == 0 && box.end[1] == shape[1];
  if (!inside || !whole_rows || (!whole_planes && box.extent(0) != 1)) {
    throw Error(Fault::kInternal, "box " + ToString(box) + " of " + ShapeToString(shape, 3) +
                                      " is neither whole planes nor whole rows of one plane");
  }
  if (whole_planes) return {box.begin[0] * shape[1], box.end[0] * shape[1]};
  const int64_t first = box.begin[0] * shape[1];
  return {first + box.begin[1], first + box.end[1]};
}

RowRange RowCursor::Advance(const Box& box) {
  const RowRange rows = RowsOfBox(box, shape_);
  if (rows.begin < next_) {
    throw Error(Fault::kInternal, "rows come in order here: row " + std::to_string(rows.begin) +
                                      " was asked for after row " + std::to_string(next_ - 1));
  }
  next_ = rows.end;
  return rows;
}

RowRange RowCursor::Continue(const Box& box) {
  const RowRange rows = RowsOfBox(box, shape_);
  if (rows.begin != next_) {
    throw Error(Fault::kInternal, "band starts at row " + std::to_string(rows.begin) + ", row " +
                                      std::to_string(next_) + " was due");
  }
  next_ = rows.end;
  return rows;
}

void RowCursor::RequireEnd() const {
  if (next_ == rows()) return;
  throw Error(Fault::kInternal, "finished after " + std::to_string(next_) + " of " +
                                    std::to_string(rows()) + " rows");
}

}  // namespace tilery
