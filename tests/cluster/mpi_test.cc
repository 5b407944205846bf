// What the environment says of an mpirun. Real ones: tests/blackbox/test_mpi.py.
#include "cluster/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster/process.h"
#include "io/error.h"

namespace tilery {
namespace {

class MpiTest : public ::testing::Test {
 protected:
  static constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                               "PMI_RANK", "PMI_SIZE"};
  void SetUp() override { TearDown(); }
  void TearDown() override {
    for (const char* variable : kVariables) unsetenv(variable);
  }
};

TEST_F(MpiTest, WithoutMpirunThereIsNoLaunch) {
  EXPECT_FALSE(FindMpiLaunch().has_value());
  setenv("PMI_RANK", "0", 1);
  EXPECT_FALSE(FindMpiLaunch().has_value()) << "a queue may set only this one";
  setenv("PMI_SIZE", "", 1);
  EXPECT_FALSE(FindMpiLaunch().has_value());
}

TEST_F(MpiTest, EachMpirunIsKnownByItsOwnVariables) {
  setenv("PMI_RANK", "2", 1);
  setenv("PMI_SIZE", "4", 1);
  auto launch = FindMpiLaunch();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->kind, "mpich");
  EXPECT_EQ(launch->rank, 2);
  EXPECT_EQ(launch->size, 4);
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  launch = FindMpiLaunch();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->kind, "openmpi");
  EXPECT_EQ(launch->rank, 1);
  EXPECT_EQ(launch->size, 3);
}

TEST_F(MpiTest, WithoutItsLibraryARunIsRefusedWithTheWayOut) {
  try {
    const MpiSession session({"mpich", 0, 2});  // this test's folder has none
    FAIL() << "it began";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("MPICH's mpirun"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("tilery-mpi-mpich.so"));
  }
}

TEST_F(MpiTest, ChildrenSeeNothingOfIt) {
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("PMI_RANK", "1", 1);
  setenv("TILERY_TEST_STAYS", "yes", 1);
  const Ran ran = RunToEnd({"/usr/bin/env"}, "");
  EXPECT_THAT(ran.output, ::testing::HasSubstr("TILERY_TEST_STAYS=yes"));
  EXPECT_THAT(ran.output, ::testing::Not(::testing::HasSubstr("OMPI_")));
  EXPECT_THAT(ran.output, ::testing::Not(::testing::HasSubstr("PMI_")));
}

}  // namespace
}  // namespace tilery
