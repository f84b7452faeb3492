// Package suite names the package whose tests are run, so that Go's tools find it.
package suite

import _ "github.com/twmb/franz-go/pkg/kgo"
