#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "io/container.h"
#include "io/tiff.h"

namespace tilery {
namespace {

// What libtiff said during the running call: its first error, and warnings of its JPEG and fax
// decoders, which mean damaged data. Other warnings (unknown tags and the like) say nothing about
// samples.
struct Said {
  char error[400];
  char decoder_warning[200];
};
thread_local Said said;

extern "C" {
static void TiffErrorHook(thandle_t, const char* module, const char* format, va_list args) {
  if (said.error[0] != 0) return;
  const int used =
      std::snprintf(said.error, sizeof said.error, "%s: ", module == nullptr ? "" : module);
  const auto offset =
      std::min<size_t>(sizeof said.error - 1, static_cast<size_t>(std::max(used, 0)));
  std::vsnprintf(said.error + offset, sizeof said.error - offset, format, args);
}
static void TiffWarningHook(thandle_t, const char* module, const char* format, va_list args) {
  if (module == nullptr) return;
  if (std::strncmp(module, "JPEG", 4) != 0 && std::strncmp(module, "Fax", 3) != 0) return;
  std::vsnprintf(said.decoder_warning, sizeof said.decoder_warning, format, args);
}

static tmsize_t TiffReadHook(thandle_t handle, void* into, tmsize_t bytes) {
  return static_cast<TiffHandle*>(handle)->ReadHere(into, bytes);
}
static tmsize_t TiffWriteHook(thandle_t handle, void* from, tmsize_t bytes) {
  return static_cast<TiffHandle*>(handle)->WriteHere(from, bytes);
}
static toff_t TiffSeekHook(thandle_t handle, toff_t offset, int whence) {
  return static_cast<toff_t>(
      static_cast<TiffHandle*>(handle)->SeekTo(static_cast<int64_t>(offset), whence));
}
static int TiffCloseHook(thandle_t) { return 0; }
static toff_t TiffSizeHook(thandle_t handle) {
  return static_cast<toff_t>(static_cast<TiffHandle*>(handle)->size());
}
}

void SilenceLibrary() {
  static std::once_flag once;
  std::call_once(once, [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    TIFFSetErrorHandlerExt(TiffErrorHook);
    TIFFSetWarningHandlerExt(TiffWarningHook);
  });
}

}  // namespace

TiffHandle::TiffHandle(const InputFile& file, const std::string& mode) : input_(&file) {
  Open(mode);
}
TiffHandle::TiffHandle(OutputFile& file, const std::string& mode) : output_(&file) { Open(mode); }

TiffHandle::~TiffHandle() {
  abandoned_ = true;  // TIFFClose would write a directory
  if (tiff_ != nullptr) TIFFClose(tiff_);
}

void TiffHandle::Open(const std::string& mode) {
  SilenceLibrary();
  Call(input_ != nullptr ? "its header" : "opening", [&] {
    tiff_ = TIFFClientOpen("TIFF", mode.c_str(), this, TiffReadHook, TiffWriteHook, TiffSeekHook,
                           TiffCloseHook, TiffSizeHook, nullptr, nullptr);
    return tiff_ != nullptr;
  });
}

void TiffHandle::Close() {
  Call("closing", [this] {
    TIFFClose(std::exchange(tiff_, nullptr));
    return said.error[0] == 0;
  });
}

void TiffHandle::Call(const std::string& what, const std::function<bool()>& call) {
  said.error[0] = said.decoder_warning[0] = 0;
  const bool ok = call();
  if (!ok || pending_ || said.decoder_warning[0] != 0) Fail(what);
}

void TiffHandle::Decode(const std::string& what, const std::function<bool()>& call) {
  Call(what, [&call] { return call() && said.error[0] == 0; });
}

void TiffHandle::Fail(const std::string& what) {
  if (pending_) std::rethrow_exception(std::exchange(pending_, nullptr));
  const char* why = said.error[0] != 0             ? said.error
                    : said.decoder_warning[0] != 0 ? said.decoder_warning
                                                   : "it holds less than it should";
  if (input_ != nullptr) {
    ThrowInput(input_->path(), "damaged TIFF, " + what + ": " + Printable(why, 300));
  }
  throw Error(Fault::kOutput,
              InFile(output_->target(), "libtiff, " + what + ": " + Printable(why)));
}

int64_t TiffHandle::ReadHere(void* into, int64_t bytes) noexcept {
  try {
    const std::span<std::byte> span(static_cast<std::byte*>(into), static_cast<size_t>(bytes));
    const size_t got =
        input_ != nullptr ? input_->ReadSome(position_, span) : output_->ReadAt(position_, span);
    position_ += static_cast<int64_t>(got);
    return static_cast<int64_t>(got);
  } catch (...) {
    pending_ = std::current_exception();
    return -1;
  }
}

int64_t TiffHandle::WriteHere(const void* from, int64_t bytes) noexcept {
  if (abandoned_) return bytes;
  try {
    output_->WriteAt(position_, {static_cast<const std::byte*>(from), static_cast<size_t>(bytes)});
    position_ += bytes;
    return bytes;
  } catch (...) {
    pending_ = std::current_exception();
    return -1;
  }
}

int64_t TiffHandle::SeekTo(int64_t offset, int whence) noexcept {
  position_ = whence == SEEK_CUR   ? position_ + offset
              : whence == SEEK_END ? size() + offset
                                   : offset;
  return position_;
}

int64_t TiffHandle::size() const noexcept {
  return input_ != nullptr ? input_->size() : output_->size();
}

}  // namespace tilery
