/* SPDX-License-Identifier: Apache-2.0 */
/* base/file_remove.c: what is removed, and above all what is not. Every case
 * works in a folder of its own, and so does what it tries to reach. */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "folder.h"

static void make_dir(const char *name)
{
    struct weft_err err;
    REQUIRE_OK(weft_dir_create(in(name), &err), err);
}

static void make_file(const char *name)
{
    struct weft_err err;
    char *folder = weft_path_parent(in(name));
    REQUIRE_OK(weft_dir_create(folder, &err), err);
    weft_free(folder);
    REQUIRE_OK(weft_file_write(in(name), "x", 1, &err), err);
}

/* dir/box is what the cases remove from, dir/keep what must stay. */
static void fresh(void)
{
    folder_make();
    make_dir("box");
    make_dir("keep/a");
    make_file("keep/a/f");
}

static void done(void)
{
    CHECK(weft_file_exists(in("keep/a/f")));
    folder_remove();
}

static int below_box(const char *name, struct weft_err *err)
{
    int fd = open(in("box"), O_RDONLY | O_DIRECTORY);
    REQUIRE(fd >= 0);
    int rc = weft_dir_remove_below(fd, in("box"), name, err);
    close(fd);
    return rc;
}

static void test_remove_ours(void)
{
    static const char *const name[] = {
        ".out.tmp-1",       ".out.tmp-4711-3",      "..out.tmp-1x.tmp-1",
        "iteration-000001", "iteration-1234567890", ".a.tmp-b.tmp-9"};
    struct weft_err err;
    char path[128];
    fresh();
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        snprintf(path, sizeof path, "box/%s/a/b/c", name[i]);
        make_dir(path);
        snprintf(path, sizeof path, "box/%s/a/b/f", name[i]);
        make_file(path);
        REQUIRE_OK(below_box(name[i], &err), err);
        snprintf(path, sizeof path, "box/%s", name[i]);
        CHECK(!weft_dir_exists(in(path)));
        REQUIRE_OK(below_box(name[i], &err), err); /* nothing there */
    }
    make_file("box/.file.tmp-2");
    REQUIRE_OK(below_box(".file.tmp-2", &err), err);
    CHECK(!weft_file_exists(in("box/.file.tmp-2")));
    /* The folder around it is not there, either. */
    REQUIRE_OK(weft_dir_remove(in("none/iteration-000001"), &err), err);
    done();
}

static void test_remove_refuses_names(void)
{
    static const char *const name[] = {
        "",
        ".",
        "..",
        "/",
        "//",
        "./",
        "../keep",
        "a",
        "iteration-",
        "iteration-00001",
        "iteration-000001/",
        "iteration-000001/..",
        "iteration-000001x",
        "iteration--00005",
        "iteration-000001 ",
        "../iteration-000001",
        "/etc/iteration-000001",
        ".tmp-1",
        "..tmp-1",
        ".out.tmp-",
        ".out.tmp-x",
        ".out.tmp-1-",
        ".out.tmp-1-x",
        ".out.tmp-1/",
        "out.tmp-1",
        ".out.tmp-1/..",
        "...tmp-x",
        "weft-",
        "weft-a-12345",
        "weft-XXXXXX",
        "weft-a-1234567",
        "weft-a-12345/",
        "weft-a/123456",
        "weft-A-123456",
        "samples",
        "*",
        "~",
        "$HOME",
        "iteration-*",
    };
    struct weft_err err;
    char path[600];
    fresh();
    make_dir("box/a");
    make_dir("box/iteration-000001/a");
    make_dir("box/.out.tmp-1/a");
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        CHECK_FAILS(below_box(name[i], &err), WEFT_EINVAL, err, "its name");
        if (!strchr(name[i], '/')) { /* else it is another name's path */
            snprintf(path, sizeof path, "%s/%s", in("box"), name[i]);
            if (name[i][0])
                CHECK_FAILS(weft_dir_remove(path, &err), WEFT_EINVAL, err,
                            "is not removed");
        }
    }
    CHECK_FAILS(weft_dir_remove(in("box"), &err), WEFT_EINVAL, err,
                "box' is not removed");
    CHECK_FAILS(weft_dir_remove(in("box/a/.."), &err), WEFT_EINVAL, err,
                "/..' is not removed");
    CHECK(weft_dir_exists(in("box/a")));
    CHECK(weft_dir_exists(in("box/iteration-000001/a")));
    CHECK(weft_dir_exists(in("box/.out.tmp-1/a")));
    done();
}

/* Links go, what they point to stays. */
static void test_remove_links(void)
{
    struct weft_err err;
    fresh();
    make_dir("box/iteration-000001/a");
    REQUIRE(symlink(in("keep"), in("box/iteration-000001/a/link")) == 0);
    REQUIRE(symlink(in("keep/a/f"), in("box/iteration-000001/f")) == 0);
    REQUIRE(symlink("..", in("box/iteration-000001/up")) == 0);
    REQUIRE(symlink(in("none"), in("box/iteration-000001/dangling")) == 0);
    REQUIRE(link(in("keep/a/f"), in("box/iteration-000001/hard")) == 0);
    REQUIRE(symlink(in("keep"), in("box/iteration-000002")) == 0);
    REQUIRE_OK(below_box("iteration-000001", &err), err);
    REQUIRE_OK(below_box("iteration-000002", &err), err);
    CHECK(!weft_dir_exists(in("box/iteration-000001")));
    CHECK(!weft_dir_exists(in("box/iteration-000002")));
    done();
}

/* mkdtemp's names may be a user's, too: only a folder of this user that
 * nobody else can open is taken for one. */
static void test_remove_temporary(void)
{
    struct weft_err err;
    fresh();
    make_dir("box/weft-models-qwen25/a");
    REQUIRE(chmod(in("box/weft-models-qwen25"), 0755) == 0);
    CHECK_FAILS(below_box("weft-models-qwen25", &err), WEFT_EINVAL, err,
                "no");
    CHECK(weft_dir_exists(in("box/weft-models-qwen25/a")));
    REQUIRE(chmod(in("box/weft-models-qwen25"), 0700) == 0);
    REQUIRE_OK(below_box("weft-models-qwen25", &err), err);
    done();
}

/* A home is found by what it is, not by its name; nothing beside it goes. */
static void test_remove_homes(void)
{
    struct weft_err err;
    char *home = getenv("HOME") ? weft_strdup(getenv("HOME")) : NULL;
    fresh();
    make_file("box/iteration-000001/0");
    make_file("box/iteration-000001/z");
    make_dir("box/iteration-000001/a/home");
    setenv("HOME", in("box/iteration-000001/a/home"), 1);
    CHECK_FAILS(below_box("iteration-000001", &err), WEFT_EINVAL, err,
                "home is in it");
    CHECK(weft_dir_exists(in("box/iteration-000001/a/home")));
    CHECK(weft_file_exists(in("box/iteration-000001/0")));
    CHECK(weft_file_exists(in("box/iteration-000001/z")));
    setenv("HOME", in("box/iteration-000001"), 1);
    CHECK_FAILS(below_box("iteration-000001", &err), WEFT_EINVAL, err,
                "home is in it");
    setenv("HOME", "", 1);
    REQUIRE_OK(below_box("iteration-000001", &err), err);
    if (home)
        setenv("HOME", home, 1);
    weft_free(home);
    done();
}

/* Another file system, or a part of this one, mounted in it. */
static void test_remove_mounts(void)
{
    struct weft_err err;
    fresh();
    make_file("box/iteration-000001/0");
    make_dir("box/iteration-000001/a/m");
    const char *at = in("box/iteration-000001/a/m");
    if (mount(in("keep"), at, NULL, MS_BIND, NULL) != 0) {
        weft_test_skip("this user may not mount");
        done();
        return;
    }
    CHECK_FAILS(below_box("iteration-000001", &err), WEFT_EINVAL, err,
                "is mounted in it");
    CHECK(weft_file_exists(in("keep/a/f")));
    CHECK(weft_file_exists(in("box/iteration-000001/0")));
    at = in("box/iteration-000001/a/m");
    REQUIRE(umount(at) == 0);
    if (mount("weft-test", at, "tmpfs", 0, "size=64k") == 0) {
        make_file("box/iteration-000001/a/m/x");
        CHECK_FAILS(below_box("iteration-000001", &err), WEFT_EINVAL, err,
                    "is mounted in it");
        CHECK(weft_file_exists(in("box/iteration-000001/a/m/x")));
        REQUIRE(umount(in("box/iteration-000001/a/m")) == 0);
    }
    REQUIRE_OK(below_box("iteration-000001", &err), err);
    done();
}

/* Nothing of ours is that deep; the folder itself goes by hand here. */
static void test_remove_deep(void)
{
    struct weft_err err;
    char path[512] = "box/iteration-000001";
    fresh();
    make_file("box/iteration-000001/f");
    for (int i = 0; i < 40; i++)
        strcat(path, "/a");
    make_dir(path);
    CHECK_FAILS(below_box("iteration-000001", &err), WEFT_EINVAL, err,
                "deeper");
    CHECK(weft_file_exists(in("box/iteration-000001/f")));
    for (size_t n; (n = strlen(path)) > strlen("box/iteration-000001");
         path[n - 2] = 0)
        REQUIRE(rmdir(in(path)) == 0);
    done();
}

static void test_sweep(void)
{
    fresh();
    make_dir("box/.a.tmp-1/b");
    make_file("box/.c.tmp-99-2");
    make_file("box/deep/.d.tmp-1");
    make_dir("box/checkpoints/.iteration-000002.tmp-1/actor");
    make_dir("box/checkpoints/iteration-000001");
    make_file("box/checkpoints/iteration-000001/.x.tmp-1");
    make_file("box/.c.tmp-x");
    REQUIRE(symlink(in("keep"), in("box/link")) == 0);
    make_file("keep/.k.tmp-1");
    weft_dir_sweep(in("box"));
    CHECK(!weft_dir_exists(in("box/.a.tmp-1")));
    CHECK(!weft_file_exists(in("box/.c.tmp-99-2")));
    CHECK(!weft_file_exists(in("box/deep/.d.tmp-1")));
    CHECK(!weft_dir_exists(in("box/checkpoints/.iteration-000002.tmp-1")));
    CHECK(weft_dir_exists(in("box/checkpoints/iteration-000001")));
    CHECK(weft_file_exists(in("box/checkpoints/iteration-000001/.x.tmp-1")));
    CHECK(weft_file_exists(in("box/.c.tmp-x")));
    CHECK(weft_file_exists(in("keep/.k.tmp-1"))); /* behind a link */
    weft_dir_sweep(in("none"));
    done();
}

WEFT_TESTS("base/file_remove", {"test_remove_ours", test_remove_ours},
           {"test_remove_refuses_names", test_remove_refuses_names},
           {"test_remove_links", test_remove_links},
           {"test_remove_temporary", test_remove_temporary},
           {"test_remove_homes", test_remove_homes},
           {"test_remove_mounts", test_remove_mounts},
           {"test_remove_deep", test_remove_deep}, {"test_sweep", test_sweep})
