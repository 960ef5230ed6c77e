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
// each feature of the first version that can be seen through one.
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
A34  TestTwoReplicas_A34_Q5
A39  TestRoutes_A7_A39_C41_C42
A56  TestEtcdAway_A56_A57_A60_A61_A62
A57  TestEtcdAway_A56_A57_A60_A61_A62
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
Q56  TestQuota_A1_A6_Q56_InWords
Q67  TestLimitChange_R12_A54_Q67
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
P50  TestOverrides_P50_Patterns
P55  TestConnectionAge_P32_P29_P55_NothingIsLost
P72  TestHeaders_R8_P72_RenamedAndHidden
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
A35  quota TestKeeper_A35_NothingLeftIsRememberedForTenSeconds
A50  cmd/mete TestOvershoot_A50_OneClosedList
R2   authz TestDecide_R2_ARateRefusesWithoutACall
R31  authz TestDecide_R31_R32_C041_EvictionNeverHandsOutAFullBucket
R32  authz TestDecide_R31_R32_C041_EvictionNeverHandsOutAFullBucket
P28  cmd/mete TestTracing_P28
P53  cmd/metectl TestScripts_P53_P71
P71  cmd/metectl TestScripts_P53_P71
P75  authz TestDecide_P75_NoDecisionReadsTheStore
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
