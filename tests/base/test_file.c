/* SPDX-License-Identifier: Apache-2.0 */
/* base/file.c: paths, reading, and writing that leaves old or new. */
#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "folder.h"

static int count(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n - 2;
}

static void check_text(char *got, const char *expected)
{
    CHECK_STR(got, expected);
    weft_free(got);
}

static void test_paths(void)
{
    check_text(weft_path_join("a", "b"), "a/b");
    check_text(weft_path_join("a/", "b"), "a/b");
    check_text(weft_path_join("a//", "b/c"), "a/b/c");
    check_text(weft_path_join("/", "b"), "/b");
    check_text(weft_path_join("", "b"), "b");
    check_text(weft_path_join("a", "/b"), "/b");
    check_text(weft_path_parent("a/b"), "a");
    check_text(weft_path_parent("a/b//"), "a");
    check_text(weft_path_parent("a//b"), "a");
    check_text(weft_path_parent("a"), ".");
    check_text(weft_path_parent("/a"), "/");
    check_text(weft_path_parent("/"), "/");
    check_text(weft_path_name("a/b"), "b");
    check_text(weft_path_name("a/b/"), "b");
    check_text(weft_path_name("b"), "b");
}

static void test_write_and_read(void)
{
    struct weft_err err = {0};
    char *data;
    size_t n;
    folder_make();
    static const size_t size[] = {0, 1, 4095, 4096, 4097, 100000};
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        char *text = malloc(size[i] + 1);
        REQUIRE(text != NULL);
        for (size_t j = 0; j < size[i]; j++)
            text[j] = (char) (j * 7 + i);
        REQUIRE_OK(weft_file_write(in("f"), text, size[i], &err), err);
        REQUIRE_OK(weft_file_read(in("f"), 0, &data, &n, &err), err);
        CHECK_INT(n, size[i]);
        CHECK(n == size[i] && memcmp(data, text, n) == 0 && data[n] == 0);
        weft_free(data);
        struct weft_map map;
        REQUIRE_OK(weft_map_open(in("f"), &map, &err), err);
        CHECK(map.n == size[i] && memcmp(map.data, text, map.n) == 0);
        weft_map_close(&map);
        free(text);
    }
    CHECK_INT(count(dir), 1); /* no temporary is left */
    CHECK_FAILS(weft_file_read(in("f"), 99999, &data, &n, &err), WEFT_EINVAL,
                err, "is larger than");
    CHECK_FAILS(weft_file_read(in("g"), 0, &data, &n, &err), WEFT_ENOTFOUND,
                err, in("g"));
    CHECK_FAILS(weft_file_read(dir, 0, &data, &n, &err), WEFT_EINVAL, err,
                "is a folder");
    REQUIRE_OK(weft_file_read("/proc/self/status", 0, &data, &n, &err), err);
    CHECK(n > 100); /* a file whose size says 0 */
    weft_free(data);
    folder_remove();
}

static void test_writer(void)
{
    struct weft_err err = {0};
    struct weft_file_writer *w;
    char *data;
    size_t n;
    folder_make();
    REQUIRE_OK(weft_file_write(in("f"), "old", 3, &err), err);
    REQUIRE_OK(weft_file_writer_open(in("f"), 6, &w, &err), err);
    REQUIRE_OK(weft_file_writer_put(w, 3, "def", 3, &err), err);
    REQUIRE_OK(weft_file_writer_put(w, 0, "abc", 3, &err), err);
    REQUIRE_OK(weft_file_read(in("f"), 0, &data, &n, &err), err);
    check_text(data, "old"); /* until it is closed */
    REQUIRE_OK(weft_file_writer_close(w, &err), err);
    REQUIRE_OK(weft_file_read(in("f"), 0, &data, &n, &err), err);
    check_text(data, "abcdef");
    REQUIRE_OK(weft_file_writer_open(in("f"), 0, &w, &err), err);
    REQUIRE_OK(weft_file_writer_put(w, 0, "x", 1, &err), err);
    weft_file_writer_abandon(w);
    REQUIRE_OK(weft_file_read(in("f"), 0, &data, &n, &err), err);
    check_text(data, "abcdef");
    CHECK_INT(count(dir), 1);
    CHECK_FAILS(weft_file_writer_open(dir, 0, &w, &err), WEFT_EINVAL, err,
                "is a folder");
    CHECK_FAILS(weft_file_writer_open(in("no/f"), 0, &w, &err),
                WEFT_ENOTFOUND, err, in("no/f"));
    REQUIRE_OK(weft_file_may_write(in("f"), &err), err);
    CHECK_FAILS(weft_file_may_write(in("no/f"), &err), WEFT_ENOTFOUND, err,
                in("no/f"));
    CHECK_INT(count(dir), 1);
    REQUIRE(mkfifo(in("pipe"), 0600) == 0);
    CHECK_FAILS(weft_file_may_write(in("pipe"), &err), WEFT_EINVAL, err,
                "is no regular file");
    folder_remove();
}

static void test_full_disk(void)
{
    struct weft_err err = {0};
    struct weft_file_writer *w;
    uint64_t left = 0;
    folder_make();
    REQUIRE_OK(weft_disk_free(in("not/there/yet"), &left, &err), err);
    CHECK(left > 0);
    CHECK_FAILS(
        weft_file_writer_open(in("f"), (size_t) left * 2 + 4096, &w, &err),
        WEFT_EFULL, err, "disk full: cannot write");
    CHECK(strstr(err.text, "MiB are free") != NULL);
    CHECK_INT(count(dir), 0);
    folder_remove();
}

/* What a killed process left goes; what a living one has stays. */
static void test_leftovers(void)
{
    struct weft_err err = {0};
    char dead[64], alive[64], other[64];
    folder_make();
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    REQUIRE(pid > 0 && waitpid(pid, NULL, 0) == pid);
    snprintf(dead, sizeof dead, ".out.tmp-%ld", (long) pid);
    snprintf(alive, sizeof alive, ".out.tmp-%ld", (long) getppid());
    snprintf(other, sizeof other, ".out2.tmp-%ld", (long) pid);
    REQUIRE_OK(weft_dir_create(in(dead), &err), err);
    REQUIRE_OK(weft_dir_create(in(alive), &err), err);
    REQUIRE_OK(weft_dir_create(in(other), &err), err);
    char *inside = weft_path_join(in(dead), "half");
    REQUIRE_OK(weft_file_write(inside, "x", 1, &err), err);
    weft_free(inside);
    char *stage;
    REQUIRE_OK(weft_dir_stage(in("out"), &stage, &err), err);
    CHECK(!weft_dir_exists(in(dead)));
    CHECK(weft_dir_exists(in(alive)) && weft_dir_exists(in(other)));
    REQUIRE_OK(weft_dir_remove(stage, &err), err);
    weft_free(stage);
    folder_remove();
}

static void stage_with(const char *path, const char *text, char **stage)
{
    struct weft_err err = {0};
    REQUIRE_OK(weft_dir_stage(path, stage, &err), err);
    char *file = weft_path_join(*stage, "f");
    REQUIRE_OK(weft_file_write(file, text, strlen(text), &err), err);
    weft_free(file);
}

static void test_stage_and_commit(void)
{
    struct weft_err err = {0};
    char *stage, *data;
    size_t n;
    folder_make();
    stage_with(in("a/b/model"), "one", &stage);
    CHECK(!weft_dir_exists(in("a/b/model")));
    REQUIRE_OK(weft_dir_commit(stage, in("a/b/model"), false, &err), err);
    weft_free(stage);
    REQUIRE_OK(weft_file_read(in("a/b/model/f"), 0, &data, &n, &err), err);
    check_text(data, "one");

    stage_with(in("a/b/model"), "two", &stage);
    CHECK_FAILS(weft_dir_commit(stage, in("a/b/model"), false, &err),
                WEFT_EINVAL, err, "exists already");
    weft_free(stage);
    REQUIRE_OK(weft_file_read(in("a/b/model/f"), 0, &data, &n, &err), err);
    check_text(data, "one");
    CHECK_INT(count(in("a/b")), 1); /* the stage is gone */

    /* Only a checkpoint is ever replaced. */
    stage_with(in("a/b/model"), "three", &stage);
    CHECK_FAILS(weft_dir_commit(stage, in("a/b/model"), true, &err),
                WEFT_EINVAL, err, "model' is not removed");
    weft_free(stage);
    REQUIRE_OK(weft_file_read(in("a/b/model/f"), 0, &data, &n, &err), err);
    check_text(data, "one");
    REQUIRE(rename(in("a/b/model"), in("a/b/iteration-000007")) == 0);
    stage_with(in("a/b/iteration-000007"), "four", &stage);
    REQUIRE_OK(weft_dir_commit(stage, in("a/b/iteration-000007"), true, &err),
               err);
    weft_free(stage);
    REQUIRE_OK(
        weft_file_read(in("a/b/iteration-000007/f"), 0, &data, &n, &err),
        err);
    check_text(data, "four");
    CHECK_INT(count(in("a/b")), 1);

    REQUIRE_OK(weft_dir_create(in("empty"), &err), err);
    stage_with(in("empty"), "five", &stage); /* an empty folder is no loss */
    REQUIRE_OK(weft_dir_commit(stage, in("empty"), false, &err), err);
    weft_free(stage);
    CHECK(weft_file_exists(in("empty/f")));
    folder_remove();
}

static void test_folders(void)
{
    struct weft_err err = {0};
    folder_make();
    REQUIRE_OK(weft_dir_create(in("a/b//c/"), &err), err);
    REQUIRE_OK(weft_dir_create(in("a/b/c"), &err), err);
    CHECK(weft_dir_exists(in("a/b/c")));
    CHECK(weft_path_is_free(in("a/b/c")) && weft_path_is_free(in("zzz")));
    CHECK(!weft_path_is_free(in("a")));
    REQUIRE_OK(weft_file_write(in("a/f"), "x", 1, &err), err);
    CHECK(weft_file_exists(in("a/f")) && !weft_dir_exists(in("a/f")));
    CHECK(!weft_path_is_free(in("a/f")));
    CHECK_FAILS(weft_dir_create(in("a/f/g"), &err), WEFT_EIO, err, "a/f");
    REQUIRE_OK(weft_file_copy(in("a/f"), in("g"), &err), err);
    CHECK(weft_file_exists(in("g")));
    folder_remove();
}

/* Root may write everywhere, so for a moment we are nobody. */
static void test_unwritable(void)
{
    const uid_t me = geteuid(), nobody = 65534;
    struct weft_err err = {0};
    folder_make();
    REQUIRE(chmod(dir, 0555) == 0);
    REQUIRE(me != 0 || seteuid(nobody) == 0);
    CHECK_FAILS(weft_file_write(in("f"), "x", 1, &err), WEFT_EIO, err,
                "Permission denied");
    CHECK_FAILS(weft_dir_create(in("d"), &err), WEFT_EIO, err,
                "cannot create folder");
    char *stage;
    CHECK_FAILS(weft_dir_stage(in("d"), &stage, &err), WEFT_EIO, err,
                in("d"));
    REQUIRE(me != 0 || seteuid(0) == 0);
    REQUIRE(chmod(dir, 0700) == 0);
    CHECK_INT(count(dir), 0);
    folder_remove();
}

WEFT_TESTS("base/file", {"test_paths", test_paths},
           {"test_write_and_read", test_write_and_read},
           {"test_writer", test_writer}, {"test_full_disk", test_full_disk},
           {"test_leftovers", test_leftovers},
           {"test_stage_and_commit", test_stage_and_commit},
           {"test_folders", test_folders},
           {"test_unwritable", test_unwritable})
