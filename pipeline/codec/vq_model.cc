#include "pipeline/codec/vq_model.h"

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <memory>

#include "io/error.h"

// TILERY_VQ_MODEL: the path of vq_model.bin, which becomes part of the program.
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".hidden tilery_vq_model\n"
    ".global tilery_vq_model\n"
    "tilery_vq_model:\n"
    ".incbin \"" TILERY_VQ_MODEL
    "\"\n"
    ".hidden tilery_vq_model_end\n"
    ".global tilery_vq_model_end\n"
    "tilery_vq_model_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char tilery_vq_model[], tilery_vq_model_end[];

namespace tilery {

static_assert(std::endian::native == std::endian::little, "the tables are little-endian");

const VqTables& VqModel() {
  static const std::unique_ptr<const VqTables> tables = [] {
    if (tilery_vq_model_end - tilery_vq_model != sizeof(VqTables))
      throw Error(Fault::kInternal, "vq_model.bin is not of the size of the tables");
    auto made = std::make_unique<VqTables>();
    std::memcpy(made.get(), tilery_vq_model, sizeof(VqTables));
    return made;
  }();
  return *tables;
}

uint64_t VqModelHash() {
  static const uint64_t hash = XXH3_64bits(&VqModel(), sizeof(VqTables));
  return hash;
}

}  // namespace tilery
