package gmailquota_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGuardOnMiniredis(t *testing.T) { quotatest.Suite(t, quotatest.Embedded) }

func TestGuardOnRedis(t *testing.T) { quotatest.Suite(t, quotatest.Real) }
