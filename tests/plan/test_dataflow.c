/* SPDX-License-Identifier: Apache-2.0 */
/* Dataflow graphs: what is refused, the order of calls, names alone. */
#include "harness.h"

#include "base/alloc.h"
#include "plan/dataflow.h"

static struct weft_dataflow g;
static struct weft_err err;

static uint32_t field(const char *name, enum weft_field_type type)
{
    return weft_flow_bit(weft_flow_field(&g, name, type));
}

/* A policy that learns from a frozen judge's scores. */
static void make(void)
{
    weft_flow_init(&g);
    int32_t policy = weft_flow_role(&g, "policy", true, false);
    int32_t judge = weft_flow_role(&g, "judge", false, true);
    uint32_t text = field("text", WEFT_FIELD_ROLLOUT);
    uint32_t score = field("score", WEFT_FIELD_SCORE);
    uint32_t gain = field("gain", WEFT_FIELD_ADVANTAGE);
    weft_flow_call(&g, "policy_train", WEFT_TRAIN, policy, text | gain, 0);
    weft_flow_call(&g, "gain", WEFT_STEP, -1, score, gain);
    weft_flow_call(&g, "judge_infer", WEFT_INFER, judge, text, score);
    weft_flow_call(&g, "policy_generate", WEFT_GENERATE, policy, 0, text);
}

static void refused(const char *part)
{
    CHECK_FAILS(weft_flow_check(&g, &err), WEFT_EINVAL, err, part);
}

static void test_check(void)
{
    make();
    REQUIRE_OK(weft_flow_check(&g, &err), err);
    weft_flow_role(&g, "idler", false, false);
    refused("no call uses the role idler");
    make();
    g.role[1].trained = true;
    refused("the role judge is to be trained, but no call does");
    make();
    g.role[0].trained = false;
    refused("the role policy is frozen, but a call trains it");
    make();
    g.call[3].writes = 0;
    refused("the call gain reads 'score', which no call writes");
    make();
    g.call[4].writes |= 1u << 1;
    refused("the calls judge_infer and policy_generate both write 'score'");
    make();
    g.call[3].reads |= 1u << 2; /* the judge waits for what waits for it */
    refused("the call policy_train waits for what it writes itself");
    make();
    g.call[3].role = -1;
    refused("the call judge_infer has no role");
    make();
    g.call[4].kind = WEFT_DATA; /* the policy's, as before */
    refused("the call policy_generate has no role, or is a step with one");
    g.call[4].role = -1;
    REQUIRE_OK(weft_flow_check(&g, &err), err);
    make();
    for (int i = 0; i < WEFT_MAX_CALLS; i++)
        weft_flow_call(&g, "more", WEFT_STEP, -1, 0, 0);
    refused("31 calls");
    make();
    for (int i = 0; i < WEFT_MAX_ROLES; i++)
        weft_flow_role(&g, "more", false, false);
    refused("16 roles");
}

/* A frozen role that follows a trained one. */
static void test_follow(void)
{
    make();
    g.role[1].follows = 0;
    g.role[1].every = 3;
    g.role[1].mix = 0.25f;
    REQUIRE_OK(weft_flow_check(&g, &err), err);
    for (int i = 0; i < 10; i++) {
        CHECK(!weft_flow_moves(&g, 0, i));
        CHECK_INT(weft_flow_moves(&g, 1, i), i == 2 || i == 5 || i == 8);
    }
    char *text = weft_flow_text(&g);
    CHECK(strstr(text, "judge: not trained, scalar head; every 3 iterations "
                       "0.25 of policy and 0.75 of itself\n")
          != NULL);
    weft_free(text);
    g.role[1].mix = 1;
    REQUIRE_OK(weft_flow_check(&g, &err), err);
    g.role[1].mix = 1.5f;
    refused("the role judge moves every 3 iterations by 1.5");
    g.role[1].mix = 0;
    refused("above 0 and at most 1");
    g.role[1].mix = 1;
    g.role[1].every = 0;
    refused("it must be at least 1");
    g.role[1].every = 1;
    g.role[1].follows = 1; /* itself, which is frozen */
    refused("the role judge cannot follow another");
    g.role[1].follows = g.n_roles;
    refused("the role judge cannot follow another");
    g.role[1].follows = -1;
    g.role[0].follows = 0;
    refused("the role policy cannot follow another");
}

/* Samples begin where they are generated or taken from data. */
static void test_origin(void)
{
    make();
    CHECK_INT(weft_flow_writer(&g, 1), 3);
    uint32_t other = field("other text", WEFT_FIELD_ROLLOUT);
    CHECK_INT(weft_flow_writer(&g, 3), -1);
    int32_t call = weft_flow_call(&g, "again_generate", WEFT_GENERATE, 0, 0,
                                  other);
    weft_flow_call(&g, "both", WEFT_STEP, -1, 1u << 2 | other,
                   field("both", WEFT_FIELD_ANSWER));
    weft_flow_call(&g, "one", WEFT_STEP, -1, other,
                   field("one", WEFT_FIELD_ANSWER));
    REQUIRE_OK(weft_flow_check(&g, &err), err);
    static const int32_t origin[] = {0, 0, 0, 3, 0, 3};
    for (int32_t f = 0; f < 6; f++)
        CHECK_INT(weft_flow_origin(&g, f), origin[f]);
    CHECK_INT(weft_flow_origin_of_call(&g, 1), 0); /* policy_train */
    CHECK_INT(weft_flow_origin_of_call(&g, call), 3);
    CHECK_INT(weft_flow_origin_of_call(&g, call + 2), 3);
    g.call[call].greedy = true;
    char *text = weft_flow_text(&g);
    CHECK(text
          && strstr(text, "again_generate: generates with policy, version i, "
                          "the likeliest tokens once per prompt\n"));
    weft_free(text);
}

static void test_order(void)
{
    int32_t order[WEFT_MAX_CALLS];
    make();
    weft_flow_order(&g, order);
    CHECK(order[0] == 4 && order[1] == 3 && order[2] == 2 && order[3] == 1);
}

static void test_asking(void)
{
    make();
    CHECK(weft_flow_trains(&g, 1) && !weft_flow_trains(&g, 4));
    CHECK(weft_flow_frozen(&g, 3) && !weft_flow_frozen(&g, 1));
    CHECK(!weft_flow_frozen(&g, 2) && !weft_flow_placed(&g, 2));
    CHECK(!weft_flow_placed(&g, 0) && !weft_flow_placed(&g, 5));
    CHECK_INT(weft_flow_find_call(&g, "gain"), 2);
    CHECK_INT(weft_flow_find_call(&g, "none"), -1);
    CHECK_INT(weft_flow_find_role(&g, "judge"), 1);
    CHECK_INT(weft_flow_call_of(&g, WEFT_INFER, -1), 3);
    CHECK_INT(weft_flow_call_of(&g, WEFT_TRAIN, 1), -1);
    CHECK_INT(weft_flow_field_of(&g, UINT32_MAX, WEFT_FIELD_SCORE), 1);
    CHECK_INT(weft_flow_field_of(&g, 1, WEFT_FIELD_SCORE), -1);
    CHECK_INT(weft_flow_bit(-1), 0);
}

static void test_guess(void)
{
    weft_flow_init(&g);
    CHECK_INT(weft_flow_guess(&g, "critic_infer"), 1);
    CHECK(weft_flow_frozen(&g, 1)); /* so far */
    CHECK_INT(weft_flow_guess(&g, "actor_generate"), 2);
    CHECK_INT(weft_flow_guess(&g, "critic_train"), 3);
    CHECK(!weft_flow_frozen(&g, 1) && weft_flow_trains(&g, 3));
    CHECK_INT(g.n_roles, 2);
    CHECK_INT(weft_flow_guess(&g, "_train"), -1);
    CHECK_INT(weft_flow_guess(&g, "advantage"), -1);
    CHECK_INT(weft_flow_guess(&g, "a_name_of_no_less_than_32_b_train"), -1);
}

static void test_text(void)
{
    make();
    char *text = weft_flow_text(&g);
    CHECK_STR(text,
              "Roles\n"
              "policy: trained\n"
              "judge: frozen, scalar head\n"
              "\n"
              "Calls of iteration i, in an order that their data allow\n"
              "policy_generate: generates with policy, version i\n"
              "    writes text\n"
              "judge_infer: infers with judge\n"
              "    reads  text\n"
              "    writes score\n"
              "gain: computes\n"
              "    reads  score\n"
              "    writes gain\n"
              "policy_train: trains policy, version i to i + 1\n"
              "    reads  text, gain\n");
    weft_free(text);
}

WEFT_TESTS("plan/dataflow", {"test_check", test_check},
           {"test_follow", test_follow}, {"test_origin", test_origin},
           {"test_order", test_order}, {"test_asking", test_asking},
           {"test_guess", test_guess}, {"test_text", test_text})
