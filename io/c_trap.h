// Calls into C libraries that report errors by longjmp (libpng, libjpeg), turned into exceptions.
//
// A longjmp must not pass frames with destructors to run, and an exception must not pass frames of
// C. So: a call into the library happens inside Trapped(), whose callable holds plain C values
// only; callbacks of ours catch everything, keep it in `pending`, and leave through the library's
// own error.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <exception>

namespace tilery {

struct CTrap {
  std::jmp_buf jump;
  char message[320] = "";
  std::exception_ptr pending;  // what a callback of ours caught

  [[noreturn]] void Leave(const char* text) {
    std::snprintf(message, sizeof message, "%s", text);
    std::longjmp(jump, 1);
  }
};

// True if `call` returned, false if the library left it: then `trap` says why.
template <typename Call>
[[nodiscard]] bool Trapped(CTrap& trap, Call&& call) {
  if (setjmp(trap.jump) != 0) return false;
  call();
  return true;
}

}  // namespace tilery
