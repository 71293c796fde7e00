package action

import (
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/bmcpassword"
	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/executor/erase"
	"github.com/ingot-metal/ingot/agent/executor/join"
	"github.com/ingot-metal/ingot/agent/executor/kexec"
	"github.com/ingot-metal/ingot/agent/executor/netboot"
	"github.com/ingot-metal/ingot/agent/executor/power"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/executor/reboot"
	"github.com/ingot-metal/ingot/agent/executor/reconfig"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/executor/resetdevices"
	"github.com/ingot-metal/ingot/agent/executor/script"
	"github.com/ingot-metal/ingot/agent/executor/testhardware"
)

var all = []Action{
	{Declaration: reboot.Declaration, reached: func(a *Agent, m Machine) executor.Executor {
		return reboot.New(reboot.Config{
			Host: m.Host, Clock: a.Clock, Settle: a.RebootSettle, Poll: a.RebootPoll, Probe: a.Probe,
		})
	}},
	{Declaration: netboot.Declaration, reached: func(_ *Agent, m Machine) executor.Executor {
		return netboot.New(m.Host)
	}},
	{Declaration: reconfig.Declaration, reached: func(a *Agent, m Machine) executor.Executor {
		return reconfig.New(reconfig.Config{
			Host: m.Host, Docs: a.Docs, Clock: a.Clock, TargetID: m.ID, Prove: a.Prove, Controllers: a.Controllers,
			Moved: a.Moved,
		})
	}},
	{
		Declaration: repave.Declaration,
		own: onHost((*Agent).isInstaller, func(a *Agent, m repave.Installer) executor.Executor {
			return repave.NewDisk(repave.DiskConfig{Installer: m, Site: a.Boot, Identity: a.NextSystem, Clock: a.Clock})
		}),
		reached: func(_ *Agent, m Machine) executor.Executor { return repave.New(m.Host, m.Simulated) },
	},
	{Declaration: power.Declaration, reached: func(a *Agent, m Machine) executor.Executor {
		return power.New(m.Host, a.Clock).WithMedia(a.Media)
	}},
	{Declaration: kexec.Declaration, own: onHost(always, func(a *Agent, m kexec.Machine) executor.Executor {
		return kexec.New(kexec.Config{
			Machine: m, Fetch: a.FetchBlob, Clock: a.Clock, Settle: a.RebootSettle, Poll: a.RebootPoll,
		})
	})},
	{Declaration: erase.Declaration, own: onHost((*Agent).erases, func(a *Agent, m erase.Machine) executor.Executor {
		return erase.New(erase.Config{Machine: m, Clock: a.Clock})
	})},
	{Declaration: script.Declaration, site: func(s *Site) executor.Executor { return script.New(s.Scripts) }},
	{Declaration: cluster.Declaration, site: func(s *Site) executor.Executor { return cluster.New(s.Clusters) }},
	{Declaration: join.Declaration, own: onHost((*Agent).joins, func(a *Agent, m join.Machine) executor.Executor {
		return join.New(join.Config{Machine: m, Material: a.JoinMaterial, Clock: a.Clock, Dir: a.JoinDir})
	})},
	{Declaration: provideraction.Declaration, site: func(s *Site) executor.Executor {
		return provideraction.New(s.ProviderActions)
	}},
	{
		Declaration: repave.PreflightDeclaration,
		own: onHost((*Agent).isInstaller, func(a *Agent, m repave.Installer) executor.Executor {
			return repave.NewPreflight(repave.DiskConfig{Installer: m, Site: a.Boot})
		}),
	},
	{Declaration: resetdevices.Declaration, own: plainly(resetdevices.New)},
	{Declaration: bmcpassword.Declaration, site: func(s *Site) executor.Executor {
		return bmcpassword.New(s.BMCPasswords)
	}},
	{Declaration: testhardware.Declaration, own: plainly(testhardware.New)},
}

func always(*Agent) bool { return true }

func (a *Agent) isInstaller() bool { return a.Installer }

// erases reports whether disks may be erased here. A simulated machine has no installer to be erased from.
func (a *Agent) erases() bool { return a.Installer || a.Own.Simulated }

// joins reports whether the machine may join a cluster: the installer is no system to join with.
func (a *Agent) joins() bool { return !a.Installer }

// onHost returns what makes the executor of an agent's own machine, where the machine's host is an M.
func onHost[M any](may func(*Agent) bool, executorOf func(*Agent, M) executor.Executor) func(*Agent) executor.Executor {
	return func(a *Agent) executor.Executor {
		if m, ok := a.Own.Host.(M); ok && may(a) {
			return executorOf(a, m)
		}
		return nil
	}
}

// plainly is onHost for an executor that needs nothing but its machine.
func plainly[M any, E executor.Executor](executorOf func(M) E) func(*Agent) executor.Executor {
	return onHost(always, func(_ *Agent, m M) executor.Executor { return executorOf(m) })
}
