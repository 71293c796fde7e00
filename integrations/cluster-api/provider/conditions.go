package provider

import (
	"errors"
	"strings"

	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/ingot-metal/ingot/api/client"
)

// refused is a condition that no call has answered with.
type refused struct{ reason, message string }

func (r *refused) Error() string { return r.message }

// refusal returns the condition Ready for an error, and reports whether Ingot or its input is the cause: then no other
// try helps before a change.
func refusal(err error) (decision, bool) {
	var own *refused
	if errors.As(err, &own) {
		return decision{reason: own.reason, message: own.message}, true
	}
	if reason := client.Reason(err); reason != 0 {
		return decision{reason: reason.String(), message: err.Error()}, true
	}
	if _, isCall := status.FromError(err); isCall {
		return decision{reason: ReasonUnreachable, message: err.Error()}, true
	}
	return decision{reason: "ManagementClusterError", message: err.Error()}, false
}

// setReady sets the condition Ready. It is true with the reason Provisioned alone.
func setReady(to *[]metav1.Condition, generation int64, d decision) {
	c := metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: d.reason,
		Message: d.message, ObservedGeneration: generation}
	if d.reason == ReasonProvisioned {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(to, c)
}

// setPaused sets the condition Paused and reports whether it is true.
func setPaused(to *[]metav1.Condition, o metav1.Object, cluster *clusterv1.Cluster) bool {
	c := metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.NotPausedReason, ObservedGeneration: o.GetGeneration()}
	_, annotated := o.GetAnnotations()[clusterv1.PausedAnnotation]
	if annotated || cluster != nil && isTrue(cluster.Spec.Paused) {
		c.Status, c.Reason = metav1.ConditionTrue, clusterv1.PausedReason
	}
	meta.SetStatusCondition(to, c)
	return c.Status == metav1.ConditionTrue
}

func isTrue(b *bool) bool { return b != nil && *b }

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/") // the version is not wanted
	return group
}
