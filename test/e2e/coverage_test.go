package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/meteproject/mete/test/envoy"
)

// throughEnvoy is which test drives a real Envoy to see that a feature holds, for
// each feature that is built and can be seen through one.
const throughEnvoy = `
A1   TestQuota_A1_A6_Q56_InWords
A3   TestQuotaExceeded_A3_A4_A13_A14_C46
A4   TestQuotaExceeded_A3_A4_A13_A14_C46
A5   TestUsedUp_A5_R10_R13
A6   TestQuota_A1_A6_Q56_InWords
A13  TestQuotaExceeded_A3_A4_A13_A14_C46
A14  TestQuotaExceeded_A3_A4_A13_A14_C46
A16  TestBilling_A16_TenantsOwnDay
A18  TestFirstSeen_R29_R30_A18
A33  TestKilled_A33_A45_A46_Q40_WithoutARestart
A34  TestTwoReplicas_A34_Q5
A39  TestRoutes_A7_A39_C41_C42
A45  TestKilled_A45_A47_P68_RestartReportsToTheUnit
A46  TestKilled_A33_A45_A46_Q40_WithoutARestart
A47  TestKilled_A45_A47_P68_RestartReportsToTheUnit
A51  TestChange_A51_A53_A54_Q13_LeasesOfBeforeAreClosed
A53  TestChange_A51_A53_A54_Q13_LeasesOfBeforeAreClosed
A54  TestChange_A51_A53_A54_Q13_LeasesOfBeforeAreClosed
A56  TestEtcdAway_A56_A57_A60_A61_A62
A57  TestEtcdAway_A56_A57_A60_A61_A62
A58  TestCap_P44_P74_A58_ThreeUnitsThenDeny
A60  TestEtcdAway_A56_A57_A60_A61_A62
A61  TestEtcdAway_A56_A57_A60_A61_A62
A62  TestEtcdAway_A56_A57_A60_A61_A62
R1   TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R3   TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R4   TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R5   TestAllowed_R5_R6_R7
R6   TestAllowed_R5_R6_R7
R7   TestAllowed_R5_R6_R7
R8   TestHeaders_R8_P72_RenamedAndHidden
R9   TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R10  TestUsedUp_A5_R10_R13
R11  TestTwoRates_R11_R18
R12  TestLimitChange_R12_A54_Q67
R13  TestUsedUp_A5_R10_R13
R14  TestAnonymous_R14_NoLimit
R15  TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R16  TestRateLimited_R15_R16_RefillsContinuously
R17  TestTwoLimits_R17_LongestWait
R18  TestTwoRates_R11_R18
R19  TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R20  TestRateLimited_R1_R3_R4_R9_R15_R19_R20
R21  TestTemplate_R21_BodyOfOnesOwn
R22  TestSplit_R22_R23_R24_R25
R23  TestSplit_R22_R23_R24_R25
R24  TestSplit_R22_R23_R24_R25
R25  TestSplit_R22_R23_R24_R25
R29  TestFirstSeen_R29_R30_A18
R30  TestFirstSeen_R29_R30_A18
Q5   TestTwoReplicas_A34_Q5
Q13  TestChange_A51_A53_A54_Q13_LeasesOfBeforeAreClosed
Q38  TestRecall_A34_Q38_Q40_AllIsServedBeforeARefusal
Q40  TestKilled_A33_A45_A46_Q40_WithoutARestart
Q45  TestExact_Q45_AKilledReplicaTakesNobodyOver
Q56  TestQuota_A1_A6_Q56_InWords
Q67  TestLimitChange_R12_A54_Q67
S24  TestOldReplica_S24_S25_NewPlanWaitsForIt
C20  TestPatience_C20_C21_EachLimitHasItsOwn
C21  TestPatience_C20_C21_EachLimitHasItsOwn
C35  TestForgedIdentity_C35
C36  TestUnverified_C36_NotCounted
C44  TestRefusals_C44_C47_OneShape
C45  TestXQuota_C45
C46  TestEnvelope_C46_QuotaAndRate
C47  TestRefusals_C44_C47_OneShape
P26  TestMTLS_P26
P27  TestReload_P27_NewCertificate
P29  TestConnectionAge_P32_P29_P55_NothingIsLost
P31  TestHealth_P31_P34_ReadyUntilItStops
P32  TestConnectionAge_P32_P29_P55_NothingIsLost
P34  TestHealth_P31_P34_ReadyUntilItStops
P44  TestCap_P44_P74_A58_ThreeUnitsThenDeny
P50  TestOverrides_P50_Patterns
P55  TestConnectionAge_P32_P29_P55_NothingIsLost
P68  TestKilled_A45_A47_P68_RestartReportsToTheUnit
P72  TestHeaders_R8_P72_RenamedAndHidden
P74  TestCap_P44_P74_A58_ThreeUnitsThenDeny
A7   TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A8   TestOutcomes_A6_A8_A9_C2_C14_Answers
A9   TestOutcomes_A6_A8_A9_C2_C14_Answers
A10  TestOutcomes_A10_C3_C4_C42_Refusals
A11  TestOutcomes_A11_CallerLeaves
A12  TestOutcomes_A12_C15_C2_WhatTheAppSays
A25  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A26  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A27  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A36  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A37  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A38  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
A40  TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
C2   TestOutcomes_A6_A8_A9_C2_C14_Answers
C3   TestOutcomes_A10_C3_C4_C42_Refusals
C4   TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns
C8   TestOnBehalf_C8_C9_C10_SignedHops
C9   TestOnBehalf_C8_C9_C10_SignedHops
C10  TestOnBehalf_C8_C9_C10_SignedHops
C14  TestOutcomes_A6_A8_A9_C2_C14_Answers
C15  TestOutcomes_A12_C15_C2_WhatTheAppSays
C41  TestRoutes_A7_A39_C41_C42
C42  TestRoutes_A7_A39_C41_C42
C59  TestEvents_Q49_C59_TheFileIsTheBill
Q49  TestEvents_Q49_C59_TheFileIsTheBill
P15  TestOutcomes_P15_EveryEndIsHeardOf
P64  TestReport_P64_A25_A37_A40_TheAPISaysItself
P66  TestState_P66_TheUpstreamKnows
P1   TestDescriptors_P1_P3_P8_P10_Rules
P3   TestDescriptors_P1_P3_P8_P10_Rules
P8   TestDescriptors_P1_P3_P8_P10_Rules
P10  TestDescriptors_P1_P3_P8_P10_Rules
P11  TestDescriptors_P11_R1_R4_R5_C127_Headers
P13  TestDescriptors_P13_P64_StreamDone
P14  TestDescriptors_P14_S31_C051_Override
P21  TestDescriptors_P21_C001_Edits
P33  TestUnixSocket_P33_ChecksAndTheLog
S31  TestDescriptors_P14_S31_C051_Override
R1   TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R3   TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R4   TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R5   TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R6   TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R9   TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R17  TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R19  TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
R20  TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030
C4   TestRLS_C4_Grace
`

// elsewhere is which test shows a feature that no Envoy can see: it is inside of a
// replica, it takes more time than a test should, or it is no matter of requests.
const elsewhere = `
A2   authz TestDecide_A2_A20_MostRequestsAskNobody
A15  plan TestTerms_A15_Zones
A17  authz TestDecide_A17_C052_C067_EndOfTheMinuteDecidesTheWindow
A19  authz TestDecide_A19_C118_WaitsAtMostThreeHundredMilliseconds
A20  authz TestDecide_A2_A20_MostRequestsAskNobody
A21  quota TestKeeper_A19_A21_FirstRequestWaitsForTenUnits
A22  quota TestKeeper_A22_A23_LeaseGrowsWithDemandUpToATenth
A23  quota TestKeeper_A22_A23_LeaseGrowsWithDemandUpToATenth
A24  authz TestDecide_A24_ALeaseIsNeverMoreThanIsLeft
A28  quota TestKeeper_A28_A30_RenewsAtSeventyPercentBehindTheRequests
A29  quota TestKeeper_A29_A31_RenewsAtFortyFiveSecondsAndNeverSpendsAfterSixty
A30  quota TestKeeper_A28_A30_RenewsAtSeventyPercentBehindTheRequests
A31  quota TestKeeper_A29_A31_RenewsAtFortyFiveSecondsAndNeverSpendsAfterSixty
A32  quota TestKeeper_A32_IdlePurseIsClosedAndItsUnitsReturn
A35  quota TestKeeper_A35_NothingLeftIsRememberedForTenSeconds
A43  quota TestOvershoot_A43_C139_MoreThanReserved
A44  quota TestOvershoot_A44_CutOffFromAChange
A48  quota TestKeeper_A48_AReportOfAGoneHolderGoesOnUnderTheNext
A49  quota TestOvershoot_A49_C24_C25_CountedWhenItIsReal
A50  cmd/mete TestOvershoot_A50_OneClosedList
A52  authz TestDecide_P69_A52_TheNextWindowIsReady
A55  quota TestSimulation_P58_P59_A34_A45_A55_A58_C101_C102
A59  quota TestOutage_A56_A57_A58_A59_A60_A61_P44_FifteenMinutes
R2   authz TestDecide_R2_ARateRefusesWithoutACall
R26  store TestMembers_R26_ASilentReplicaIsCountedUntilItsTTLEnds
R27  authz TestDecide_R27_R28_KnownEffects
R28  authz TestDecide_R27_R28_KnownEffects
R31  authz TestDecide_R31_R32_C041_EvictionNeverHandsOutAFullBucket
R32  authz TestDecide_R31_R32_C041_EvictionNeverHandsOutAFullBucket
Q34  quota TestKeeper_Q34_Q35_RefilledWhenShortOrOver
Q35  quota TestKeeper_Q34_Q35_RefilledWhenShortOrOver
Q36  quota TestWorkedExample_Q36_Q39_Q42_Q43
Q37  quota TestApply_Q37_Q41_GrantsShrinkNearTheEnd
Q39  quota TestWorkedExample_Q36_Q39_Q42_Q43
Q41  quota TestApply_Q37_Q41_GrantsShrinkNearTheEnd
Q42  quota TestWorkedExample_Q36_Q39_Q42_Q43
Q43  quota TestWorkedExample_Q36_Q39_Q42_Q43
Q44  bench TestStoreOperations_Q44_PerMillionDecisions
S14  authz TestDecide_S14_AllReplicasAgreeOnTheWindow
S25  cmd/mete TestGate_S25_S26_TooOldForTheStore
S26  store TestOldReplica_S26_KeepsTheLastVersionItCouldRead
S27  cmd/metectl TestScripts_P22_P53_P71_S27
S28  plan TestLevel_S28_TheDocumentationNamesEveryNewField
S29  store TestGate_S29_NoRequestMore
S30  store TestAccounts_S30_WritesKeepUnknownFields
C22  quota TestKeeper_C22_C23_ReportsSumUp
C23  quota TestKeeper_C22_C23_ReportsSumUp
C24  quota TestOvershoot_A49_C24_C25_CountedWhenItIsReal
C25  quota TestOvershoot_A49_C24_C25_CountedWhenItIsReal
C26  authz TestDecide_C26_NoRoomForMoreTenants
C27  quota TestKeeper_C27_FailedReportsAreRetriedAndCountOnce
C28  cmd/mete TestStop_A32_C28_Settles
P28  cmd/mete TestTracing_P28
P2   authz TestSetShadowMode_P2_C126_UnderLoad
P4   authz TestCount_P4_Replaces
P5   authz TestCount_P5_C126_QuotaMode
P6   plan TestAppendSeries_P6_C027_AsEnvoysRateLimitSpellsIt
P9   plan TestMatch_P7_P8_P9_P10_C011_C012_C014_AsTheNaiveMatcher
P12  quota TestWindowOfSeveralUnits_P12
P16  authz TestCount_P16_RemembersRefusals
P17  authz TestRuleStats_P17_AsEnvoysRateLimitCounts
P18  plan TestMatch_P18_AsTheNaiveMatcher
P22  cmd/metectl TestScripts_P22_P53_P71_S27
P36  authz TestCount_P36_ClearedBucket
P57  envoy TestCounted_P57_NotUTF8
P70  plan TestMergeRateLimits_P70_C002_ByFileName
P43  quota TestKeeper_P43_LearnsAfterARestore
P53  cmd/metectl TestScripts_P22_P53_P71_S27
P58  quota TestSimulation_P58_P59_A34_A45_A55_A58_C101_C102
P59  quota TestSimulation_P58_P59_A34_A45_A55_A58_C101_C102
P69  quota TestKeeper_P69_A29_RenewalsAreSpread
P71  cmd/metectl TestScripts_P22_P53_P71_S27
P75  authz TestDecide_P75_NoDecisionReadsTheStore
A41  authz TestSettle_A40_A41_A43_C093_Debt
A42  authz TestSettle_A26_A27_A40_A42_Q49_C134_C135_Storm
A48  authz TestSettle_A48_LongRequest
C1   authz TestClasses_C1_C4_C5_OneBudgetEach
C5   authz TestClasses_C1_C4_C5_OneBudgetEach
C6   authz TestRoutes_C6_ASecondBudgetBesideTheCall
C7   authz TestClasses_C7_ServicesAreFree
C11  authz TestOnBehalf_C11_StillTakesReservations
C12  authz TestClasses_C12_C13_C17_ImpersonationNeitherSpendsNorIsRefused
C13  authz TestClasses_C12_C13_C17_ImpersonationNeitherSpendsNorIsRefused
C16  authz TestSettle_C16_ReplaysAreFreeAndNotRefused
C17  authz TestClasses_C12_C13_C17_ImpersonationNeitherSpendsNorIsRefused
C18  authz TestDecide_C18_AReadingIsGoodForItsHeadroom
C19  authz TestDecide_C19_ADeniedReadingDoesNotOutliveAnUpgrade
C37  authz TestRoutes_C37_AnEnvoyRouteNamesTheRule
C38  authz TestRoutes_C38_C39_WhoSignsInIsNobodyYet
C39  authz TestRoutes_C38_C39_WhoSignsInIsNobodyYet
C40  authz TestRoutes_C40_DirectorySyncHasItsOwnBucket
C43  authz TestRoutes_C41_C43_PollingIsFree
S39  envoy TestLimitMetadata_P15_S39
P65  authz TestSettle_P64_P65_A37_SourcesInOrder
`

// Every test that the tables name is there, and carries the feature in its name.
func TestCoverage(t *testing.T) {
	t.Parallel()
	root, err := envoy.Root()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(throughEnvoy + elsewhere) {
		row := strings.Fields(line)
		if len(row) == 0 {
			continue
		}
		id, name, dir := row[0], row[len(row)-1], "test/e2e"
		if len(row) == 3 {
			dir = row[1]
		}
		if known[dir] == "" {
			known[dir] = testsIn(t, filepath.Join(root, dir))
		}
		if !strings.Contains(known[dir], "\nfunc "+name+"(") || !strings.Contains(name+"_", "_"+id+"_") {
			t.Errorf("%s: %s has no test %s of that feature", id, dir, name)
		}
	}
}

// testsIn returns the heads of the tests in a folder, one a line.
func testsIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var heads strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, head := range regexp.MustCompile(`(?m)^func Test\w+\(`).FindAllString(string(text), -1) {
			heads.WriteString("\n" + head)
		}
	}
	return heads.String()
}
